"""The wall clock of a simulated world: it jumps, and nothing may come of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EPOCH_S = 1_700_000_000.0


class WallClock:
    """The time of day for everybody in the world: an epoch, the virtual time, and how far it has jumped."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._offset_s = now, 0.0

    def read(self) -> float:
        """Seconds since the epoch."""
        return _EPOCH_S + self._now() + self._offset_s

    def jump(self, seconds: float) -> None:
        """Somebody sets it."""
        self._offset_s += seconds

    @contextmanager
    def on_the_wall(self) -> Iterator[None]:
        """While the world goes on, its time of day is everybody's."""
        real = time.time  # noqa: TID251  # to put another in its place
        time.time = self.read  # noqa: TID251
        try:
            yield
        finally:
            time.time = real  # noqa: TID251
