"""Works: pieces of this peer's own work that others may wait for, such as local steps, and whether one takes far longer
than usual.

A piece of work is overdue after 10 times the recent median duration of its kind, but not before 10 seconds; while no
work of its kind has ended yet, after 60 seconds. The work runs off the event loop, so the loop can detect that it
hangs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from statistics import median

LOCAL_STEPS, EVALUATION = "local steps", "evaluation"
TIMES, LEAST_S, FIRST_S = 10, 10.0, 60.0
AGAIN_S = 30.0
"""Seconds between two reports of the same overdue work."""
_OF_LATE = 20


class Usual:
    """The durations of the latest 20 pieces of one kind of work."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=_OF_LATE)

    def took(self, seconds: float) -> None:
        """Note that a piece of work of this kind took `seconds`."""
        self._took_s.append(seconds)

    @property
    def s(self) -> float:
        """The median of the recent durations in seconds; 0: no such work has ended."""
        return median(self._took_s) if self._took_s else 0.0

    @property
    def limit_s(self) -> float:
        """Seconds after which a piece of work of this kind is overdue (see the module)."""
        return max(LEAST_S, TIMES * self.s) if self._took_s else FIRST_S


class Work:
    """A piece of work, from its construction to `end`. `kind`: its name; `usual`: the durations of earlier work of that
    kind, by which it is overdue. `where` returns its progress, for a report. `overdue` is called with this object when
    the work is overdue, every 30 seconds after that, and when it has taken `patience_s` seconds (None: no such limit);
    `told`: whether it was called. `ended` is called with this object at the end."""

    def __init__(
        self,
        kind: str,
        where: Callable[[], str],
        usual: Usual,
        *,
        patience_s: float | None,
        overdue: Callable[[Work], None],
        ended: Callable[[Work], None],
    ) -> None:
        self.kind, self.where, self.usual, self.told = kind, where, usual, False
        self._patience_s, self._overdue, self._ended = patience_s, overdue, ended
        self._began_s = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None
        self._tell_at(self._began_s + usual.limit_s)

    @property
    def took_s(self) -> float:
        """Seconds since the work began."""
        return asyncio.get_running_loop().time() - self._began_s

    def end(self) -> None:
        """Note that the work has ended, done or failed: its duration is added to `usual`, and `ended` is called. Does
        nothing after an earlier `end` or `drop`."""
        if self._timer is not None:
            self.drop()
            self.usual.took(self.took_s)
            self._ended(self)

    def drop(self) -> None:
        """Stop watching this work, without counting its duration or calling `ended`; a later `end` does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_at(self, when: float) -> None:
        loop = asyncio.get_running_loop()
        patience_ends = self._began_s + (self._patience_s or 0.0)
        at = patience_ends if loop.time() < patience_ends < when else when
        self._timer = loop.call_at(at, self._tell)

    def _tell(self) -> None:
        self.told = True
        self._tell_at(asyncio.get_running_loop().time() + AGAIN_S)
        self._overdue(self)
