"""Where the time of a round goes: this peer's own part in it, waiting for others, or transfer; each moment to one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from .transport import PeerId

Late = Callable[[], Collection[PeerId]]
"""Whose own part a sum waits for now."""


class Meter:
    """Of sums, several of which may be under way at a time. While this peer's part is not ready all is compute,
    whatever is sent meanwhile: that costs it nothing. Else it waits while all sums stand still, as nobody has begun
    with what is due, or while it has to be agreed on who takes part. All other time is transfer. Of who stands still it
    asks whose own part is late: not of those who only pass on what they wait for themselves. What is averaged while
    local steps go on is hidden behind them, whatever it is."""

    def __init__(self) -> None:
        self.compute_s = self.wait_s = self.transfer_s = self.hidden_s = 0.0
        self._at = 0.0
        self._hidden = False
        self._round = 0
        self._computing = False
        self._sums = self._unsettled = 0
        self._still: list[Late] = []
        self._waited_for_s: defaultdict[PeerId, float] = defaultdict(float)

    def begin(self, *, computing: bool, goes_on: bool = False) -> Callable[[], None]:
        """A round begins. `computing`: what this peer brings is not ready before what this gives is called. `goes_on`:
        it had begun, and local steps came between."""
        if not goes_on:
            self.compute_s = self.wait_s = self.transfer_s = self.hidden_s = 0.0
            self._waited_for_s.clear()
        self._at, self._computing = asyncio.get_running_loop().time(), computing
        self._round += 1
        begun = self._round

        def ready() -> None:
            if begun == self._round:
                self.read()
                self._computing = False

        return ready

    def read(self) -> None:
        """Bring the seconds up to date."""
        now = asyncio.get_running_loop().time()
        spent_s, self._at = now - self._at, now
        if self._computing:
            self.compute_s += spent_s
        elif self._hidden:
            self.hidden_s += spent_s
        elif self.waits:
            self.wait_s += spent_s
            for peer in self.late:
                self._waited_for_s[peer] += spent_s
        else:
            self.transfer_s += spent_s

    @contextmanager
    def summing(self) -> Iterator[None]:
        """A sum is under way."""
        self.read()
        self._sums += 1
        try:
            yield
        finally:
            self.read()
            self._sums -= 1

    def stands(self, late: Late) -> None:
        """A sum that is under way has come to stand still."""
        self.read()
        self._still.append(late)

    def goes_on(self, late: Late) -> None:
        """It does so no more."""
        self.read()
        self._still.remove(late)

    @contextmanager
    def standing(self, late: Late) -> Iterator[None]:
        """One is, and stands still all the time."""
        with self.summing():
            self.stands(late)
            try:
                yield
            finally:
                self.goes_on(late)

    @contextmanager
    def unsettled(self) -> Iterator[None]:
        """It is being agreed on who takes part."""
        self.read()
        self._unsettled += 1
        try:
            yield
        finally:
            self.read()
            self._unsettled -= 1

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Local steps go on."""
        self.read()
        self._hidden = True
        try:
            yield
        finally:
            self.read()
            self._hidden = False

    def in_vain(self, since_s: float) -> None:
        """All transfer since `transfer_s` was `since_s` came to nothing: that was waiting for who did not come."""
        self.read()
        self.wait_s, self.transfer_s = self.wait_s + self.transfer_s - since_s, since_s
        self._waited_for_s.clear()

    @property
    def waits(self) -> bool:
        """Whether all sums stand still, or it is being agreed on who takes part."""
        return self._unsettled > 0 or 0 < self._sums == len(self._still)

    @property
    def late(self) -> set[PeerId]:
        """Whose own part is waited for now."""
        return {peer for late in self._still for peer in late()}

    @property
    def waited_for(self) -> PeerId | None:
        """Whose own part this peer has waited for, more than half of its waiting; None: nobody's."""
        longest_s, peer = max(((spent_s, peer) for peer, spent_s in self._waited_for_s.items()), default=(0.0, None))
        return peer if 2 * longest_s > self.wait_s else None
