"""Numerical work on whole models, off the event loop: heartbeats and other peers' chunks never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_AT_ONCE_BYTES = 1 << 20
"""Below this the work takes less time than to hand it over."""


async def off_loop(nbytes: int, work: Callable[[], T]) -> T:
    """The result of `work`, which reads or writes about `nbytes`. When cancelled meanwhile, the work is done all the
    same, and its result dropped."""
    if nbytes <= _AT_ONCE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)
