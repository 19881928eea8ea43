"""Pushes and synchronisation: fresh words at once to a few members, and all that a peer knows to one that differs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from ..transport import PeerId
from .effects import Effects
from .member_table import MemberTable
from .messages import TABLE_MAX, Beat, Table, Tell, check_words
from .suspicion import Suspicion
from .timing import Timing

_FLUSH, _FLUSHES_MAX = 1 / 16, 4
"""Share of a period that fresh words wait for each other, and how often in a period they are told at once."""
_SYNC = 8
"""In so many periods a peer asks for another one's table once at most."""


class PushSync:
    """One peer's side of this. `beat`: makes the beat for a peer."""

    def __init__(
        self,
        table: MemberTable,
        timing: Timing,
        effects: Effects,
        chance: random.Random,
        beat: Callable[[PeerId], Beat],
    ) -> None:
        self._table, self._timing, self._effects = table, timing, effects
        self._chance, self._beat = chance, beat
        self.flush_s = math.inf
        """When fresh words are due to be told, on the clock."""
        self._flushes = 0
        self._synced = -_SYNC

    def fresh(self) -> None:
        """There is a fresh word: tell it soon, with others that may come until then."""
        if self._timing.eager and self.flush_s == math.inf and self._flushes < _FLUSHES_MAX:
            self.flush_s = self._effects.now() + _FLUSH * self._timing.period_s
            self._flushes += 1

    def begin_period(self) -> None:
        self._flushes = 0

    def flush(self) -> None:
        """Tell fresh words to some members."""
        self.flush_s = math.inf
        members = list(self._table.entries)
        for peer in self._chance.sample(members, min(len(members), max(1, self._timing.eager))):
            self._effects.send(peer, Tell(self._beat(peer)))

    def sync(self, peer: PeerId, period: int, *, soon: bool = False) -> None:
        """Compare with a member that knows other members than this peer: tell it all, and ask for all. `soon`: once a
        period at most, in place of once in `_SYNC`."""
        if period >= self._synced + (1 if soon else _SYNC):
            self._synced = period
            self._effects.send(peer, Table(self._table.words(), True))

    def take(self, sender: PeerId, table: Table, suspicion: Suspicion) -> None:
        """A member tells all that it knows. Raises PeerMisbehaved when no honest peer can say that."""
        check_words(table.words, TABLE_MAX)
        if sender not in self._table.entries:
            return
        for word in table.words:
            suspicion.hear(word, sender)
        if table.answer:
            self._synced = suspicion.period
            self._effects.send(sender, Table(self._table.words(), False))
