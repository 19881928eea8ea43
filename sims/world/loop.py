"""Virtual time: an asyncio event loop whose clock jumps to the next due timer whenever no callback is ready.

The loop runs the same code as a real one; only its time is virtual. Work for a thread runs at once on the loop's own
thread, so that a run is a function of its seed. Timers due at the same time fire in an order drawn from the seed, so
that code which relies on the order in which timers were set fails.
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
"""Number of passes of the loop at one moment of virtual time, after which the run counts as a livelock."""


_RESOLUTION_S = 1e-9


class Deadlock(RuntimeError):
    """The run cannot end: every task waits and no timer is set, or tasks run for ever while no virtual time passes."""


class _Handle(asyncio.Handle):
    __slots__ = ()
    _context: Context


class _Timer(asyncio.TimerHandle):
    __slots__ = ()
    _context: Context
    _scheduled: bool


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time. `time()`, in seconds, starts at 0 and advances only when no callback is ready. The
    loop has no selector, because it waits for no files: instead of waiting it advances its clock. A callback whose
    machine is paused or dead does not run: the machine keeps it until it resumes (`Machine.takes`)."""

    _ready: deque[_Handle | _Timer]
    _stopping: bool

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._clock_resolution = _RESOLUTION_S
        self._now = 0.0
        self._tie = random.Random(seed).random
        # Tuples, which compare in C: the due time, the rank among those due at the same time, a number, and
        # a timer, or a function with its arguments.
        self._timers: list[tuple[float, float, int, _Timer | None, Callable[..., object], tuple[Any, ...]]] = []
        self._set = self._cancelled_timers = 0
        self._moment, self._passes = 0.0, 0

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        machine = MACHINE.get() if context is None else context.get(MACHINE)
        # Each machine has its own generator: one more timer on one does not reshuffle those of the others.
        tie = self._tie() if machine is None else machine.tie()
        timer = _Timer(when, callback, args, self, context)
        self._set += 1
        heapq.heappush(self._timers, (when, tie, self._set, timer, callback, ()))
        timer._scheduled = True
        return timer

    def happen(self, when: float, tie: float, do: Callable[[*Ts], object], *what: *Ts) -> None:
        """Call `do` at the virtual time `when`, outside any machine; it cannot be cancelled. `tie`: from 0 to 1, its
        rank among the timers that are due at the same time."""
        self._set += 1
        heapq.heappush(self._timers, (when, tie, self._set, None, do, what))

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """Run the ready callbacks and the due timers. If no callback is ready, first advance to the next timer."""
        timers, ready = self._timers, self._ready
        while timers and (timer := timers[0][3]) is not None and timer.cancelled():
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not ready and not self._stopping:
            if not timers:
                raise Deadlock("every task waits for another and no timer is set")
            self._advance(timers[0][0])
        self._passes += 1
        if self._passes >= PASSES_MAX:
            raise self._livelock()
        end_s, due = self._now + self._clock_resolution, []
        while timers and timers[0][0] < end_s:
            due.append(heapq.heappop(timers))
        for _ in range(len(ready)):
            self._run(ready.popleft())
        for _, _, _, timer, do, what in due:
            if timer is not None:
                timer._scheduled = False
                self._run(timer)
                continue
            try:
                do(*what)
            except Exception as error:
                self.call_exception_handler({"message": f"{do} failed", "exception": error})

    def _run(self, handle: _Handle | _Timer) -> None:
        if not handle.cancelled():
            machine = handle._context.get(MACHINE)
            if machine is None or machine.takes(handle):
                handle._run()

    def _advance(self, when: float) -> None:
        if when <= self._now:
            return
        self._now = when
        # Never finer than the clock's own resolution: else a due timer could count as not yet due.
        resolution_s = self._clock_resolution = max(_RESOLUTION_S, 4 * math.ulp(when))
        if when - self._moment > resolution_s:  # an advance below the clock's resolution is none
            self._moment, self._passes = when, 0

    def _livelock(self) -> Deadlock:
        self._passes = 0  # remaining tasks can still be cancelled
        return Deadlock(f"livelock: tasks run for ever at {self._now:g} s, and no time passes")

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        """Count a cancelled timer. Cancelled timers are removed when they are due, or all at once when more than half
        of the timers are cancelled."""
        if not handle._scheduled:
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > max(100, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if entry[3] is None or not entry[3].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def again(self, handle: asyncio.Handle) -> None:
        """Make a callback ready that its machine did not take when it was due (`Machine.takes`)."""
        self._ready.append(handle)  # type: ignore[arg-type]

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` at once, on this thread, and return a future that is done already, with the result or the
        exception. `executor` is not used."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _write_to_self(self) -> None:
        """Do nothing, because no other thread wakes this loop."""


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run `main` on a new virtual loop, cancel the remaining tasks, and return its result. `seed`: for the order of
    timers that are due at the same time. Raises Deadlock, and what `main` raises."""
    with _little_garbage_collection(), asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main)


@contextmanager
def _little_garbage_collection() -> Iterator[None]:
    """A context in which Python collects garbage rarely. A world has many objects that live as long as it does, and to
    scan them repeatedly takes more time than to deliver all messages."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
