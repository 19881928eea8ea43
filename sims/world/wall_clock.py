"""The wall clocks of a simulated world. Faults make them jump and drift, which must have no effect on a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from .machine import MACHINE

_EPOCH_S = 1_700_000_000.0


class _Skew:
    """The error of a clock: `_offset_s` seconds at the virtual time `_since_s`, growing by `_rate` seconds a second."""

    def __init__(self) -> None:
        self._offset_s = self._rate = self._since_s = 0.0

    def at(self, now: float) -> float:
        return self._offset_s + self._rate * (now - self._since_s)

    def change(self, now: float, jump_s: float, drift: float) -> None:
        self._offset_s, self._since_s = self.at(now) + jump_s, now
        self._rate += drift


class WallClock:
    """The time of day on each host: an epoch, plus the virtual time, plus an error common to all clocks, plus the error
    of the host's own clock. A clock belongs to the hardware (`Machine.host`), so a restarted peer finds it unchanged.
    `now`: returns the virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._all = _Skew()
        self._own: dict[str, _Skew] = {}

    def read(self) -> float:
        """Seconds since the epoch by the clock of the machine whose code is running."""
        now, machine = self._now(), MACHINE.get()
        own = None if machine is None else self._own.get(machine.host)
        return _EPOCH_S + now + self._all.at(now) + (0.0 if own is None else own.at(now))

    def change(self, hosts: Collection[str], *, jump_s: float = 0.0, drift: float = 0.0) -> None:
        """Set the clocks of these hosts, or all clocks if none are given, ahead by `jump_s` seconds. From now on they
        gain `drift` more seconds a second."""
        for skew in [self._own.setdefault(host, _Skew()) for host in hosts] or [self._all]:
            skew.change(self._now(), jump_s, drift)

    @contextmanager
    def on_the_wall(self) -> Iterator[None]:
        """While in this context, `time.time` reads this clock."""
        real = time.time  # noqa: TID251  # to replace it
        time.time = self.read  # noqa: TID251
        try:
            yield
        finally:
            time.time = real  # noqa: TID251
