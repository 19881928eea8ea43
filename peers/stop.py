"""Asking a peer to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stop:
    """Set once. `flag` may be read from any thread, between two local steps."""

    def __init__(self) -> None:
        self.flag = False
        self._event = asyncio.Event()

    def set(self) -> None:
        self.flag = True
        self._event.set()

    async def unless(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """The result of `work`, or None when told to stop before it was done; it is cancelled then."""
        task = asyncio.create_task(work())
        stopped = asyncio.create_task(self._event.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, stopped):
                each.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)
