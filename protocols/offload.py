"""Numerical work on whole models, off the event loop: heartbeats and other peers' chunks never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_AT_ONCE_BYTES = 1 << 20
"""Up to this size the work takes less time than handing it to a thread."""


async def off_loop(nbytes: int, work: Callable[[], T]) -> T:
    """Returns the result of `work`, which reads or writes about `nbytes` bytes, or raises what it raises. Work on more
    than 1 MiB runs in a thread: nobody may change its data meanwhile. If the caller is cancelled, the thread's work
    still completes, and its result is dropped."""
    if nbytes <= _AT_ONCE_BYTES:
        return work()
    held = [work]
    del work  # a thread keeps what it ran for a moment longer than its result: that must not be whole models
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, lambda: held.pop()()))
