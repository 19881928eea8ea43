"""The wall clocks of a simulated world: they jump and drift, and nothing may come of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from .machine import MACHINE

_EPOCH_S = 1_700_000_000.0


class _Skew:
    """How far a clock is off: `offset_s` at `since_s`, and `rate` seconds a second more from there on."""

    def __init__(self) -> None:
        self._offset_s = self._rate = self._since_s = 0.0

    def at(self, now: float) -> float:
        return self._offset_s + self._rate * (now - self._since_s)

    def change(self, now: float, jump_s: float, drift: float) -> None:
        self._offset_s, self._since_s = self.at(now) + jump_s, now
        self._rate += drift


class WallClock:
    """The time of day, as each host has it: an epoch, the virtual time, what befell all clocks and what befell its own.
    A clock belongs to the hardware (`Machine.host`): who is started anew finds it as it was."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._all = _Skew()
        self._own: dict[str, _Skew] = {}

    def read(self) -> float:
        """Seconds since the epoch, for whose code is running."""
        now, machine = self._now(), MACHINE.get()
        own = None if machine is None else self._own.get(machine.host)
        return _EPOCH_S + now + self._all.at(now) + (0.0 if own is None else own.at(now))

    def change(self, hosts: Collection[str], *, jump_s: float = 0.0, drift: float = 0.0) -> None:
        """Somebody sets the clocks of these hosts, and from now on they gain `drift` seconds a second more; no hosts:
        all clocks there are."""
        for skew in [self._own.setdefault(host, _Skew()) for host in hosts] or [self._all]:
            skew.change(self._now(), jump_s, drift)

    @contextmanager
    def on_the_wall(self) -> Iterator[None]:
        """While the world goes on, its time of day is everybody's."""
        real = time.time  # noqa: TID251  # to put another in its place
        time.time = self.read  # noqa: TID251
        try:
            yield
        finally:
            time.time = real  # noqa: TID251
