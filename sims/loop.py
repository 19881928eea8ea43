"""Virtual time: an asyncio loop whose clock jumps to the next thing that is due, as nothing real is waited for.

Only time is virtual: the code that runs on the loop is the code that runs on a real one. What would go to a thread
runs at once, on the spot, so that a run is a function of its seed. Timers that are due at the same time go off in an
order that the seed draws: what holds only because of the order in which timers were set does not hold.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from .machine import MACHINE

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


PASSES_MAX = 10**6
"""How often the loop goes round at one moment of virtual time before that is called endless."""


class Deadlock(RuntimeError):
    """Every task waits and nothing is due, or tasks run for ever while no time passes: no real network would bring it
    to an end either."""


class _Jump:
    """The selector of a loop without files: to wait is to move the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.now = 0.0
        self._loop = loop
        self._moment, self._passes = 0.0, 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits for another and no timer is set")
        self.now += timeout
        self._count()
        # Never finer than the clock's own digits: else a timer that is due would be taken for one that is just not.
        self._loop._clock_resolution = max(1e-9, 4 * math.ulp(self.now))
        return []

    def _count(self) -> None:
        """Time that moves by less than the clock shows stands still too."""
        self._passes += 1
        if self.now - self._moment > self._loop._clock_resolution:
            self._moment, self._passes = self.now, 0
        elif self._passes >= PASSES_MAX:
            self._passes = 0  # what it leaves behind can still be cancelled
            raise Deadlock(f"livelock: tasks run for ever at {self.now:g} s, and no time passes")


class _Handle(asyncio.Handle):
    """A callback that runs only if its machine does."""

    __slots__ = ()
    _context: Context

    def _run(self) -> None:
        machine = self._context.get(MACHINE)
        if machine is None or machine.takes(self):
            super()._run()


class _Timer(_Handle, asyncio.TimerHandle):
    """The same at a given time. `tie`: which of those that are due at the same time goes first."""

    __slots__ = ("_tie",)
    _scheduled: bool
    _when: float

    def __init__(self, when: float, tie: float, *handle: Any) -> None:
        super().__init__(when, *handle)
        self._tie = tie

    def __lt__(self, other: _Timer) -> bool:  # type: ignore[override]  # there are no others, and it is asked often
        return self._when < other._when or (self._when == other._when and self._tie < other._tie)


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` starts at 0 and advances only when there is nothing left to do now."""

    _scheduled: list[asyncio.TimerHandle]
    _ready: deque[asyncio.Handle]

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9
        self._tie = random.Random(seed).random

    def time(self) -> float:
        return self._selector.now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        machine = MACHINE.get() if context is None else context.get(MACHINE)
        # Each machine draws for itself: one timer more on one of them does not reshuffle the others'.
        tie = self._tie() if machine is None else machine.tie()
        timer = _Timer(when, tie, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def _call_soon(
        self, callback: Callable[[*Ts], object], args: tuple[*Ts], context: Context | None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def again(self, handle: asyncio.Handle) -> None:
        """Run a callback, whose machine did not take it when it was due, as soon as possible."""
        self._ready.append(handle)

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


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run `main` on a new virtual loop, cancel what it leaves behind, and return its result. Raises Deadlock."""
    with _little_garbage_collection(), asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main)


@contextmanager
def _little_garbage_collection() -> Iterator[None]:
    """A world has many objects that live as long as it does: to look through them again and again takes more time than
    all messages."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
