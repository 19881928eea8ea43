"""Virtual time: an asyncio loop whose clock jumps to the next thing that is due, as nothing real is waited for.

Only time is virtual: the code that runs on the loop is the code that runs on a real one. What would go to a thread
runs at once, on the spot, so that a run is a function of its seed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Deadlock(RuntimeError):
    """Every task waits and nothing is due: no real network would bring it to an end either."""


class _Jump:
    """The selector of a loop without files: to wait is to move the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.now = 0.0
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits for another and no timer is set")
        self.now += timeout
        # Never finer than the clock's own digits: else a timer that is due would be taken for one that is just not.
        self._loop._clock_resolution = max(1e-9, 4 * math.ulp(self.now))
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` starts at 0 and advances only when there is nothing left to do now."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._selector.now

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[Any]) -> None:
        """No files, no events."""

    def _write_to_self(self) -> None:
        """Nobody wakes this loop from another thread."""


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a new virtual loop, cancel what it leaves behind, and return its result. Raises Deadlock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
