"""Pushes and synchronisation: a peer tells fresh words to a few members at once, and sends its whole member table to a
member whose table differs."""

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
"""The share of a period for which fresh words wait for further ones, and how many times in a period they are pushed."""
_SYNC = 8
"""The fewest periods between two requests for another peer's table."""


class PushSync:
    """Sends one peer's fresh words to a few members at once, and its whole table to a member whose table differs.
    `beat` makes the beat that it sends to a peer."""

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
        """The time at which fresh words are to be pushed; infinite: there are none."""
        self._flushes = 0
        self._synced = -_SYNC

    def fresh(self) -> None:
        """Note that there is a fresh word: a push is due a sixteenth of a period from now, with all words that come
        until then, unless one is due already. There are at most four pushes in a period, and none if `Timing.eager` is
        0."""
        if self._timing.eager and self.flush_s == math.inf and self._flushes < _FLUSHES_MAX:
            self.flush_s = self._effects.now() + _FLUSH * self._timing.period_s
            self._flushes += 1

    def begin_period(self) -> None:
        """Note that a period begins: the limit on pushes in a period begins anew."""
        self._flushes = 0

    def flush(self) -> None:
        """Push fresh words now, a few in one message, to as many random members as `Timing.eager` says, and at least to
        one if there is any member."""
        self.flush_s = math.inf
        members = list(self._table.entries)
        for peer in self._chance.sample(members, min(len(members), max(1, self._timing.eager))):
            self._effects.send(peer, Tell(self._beat(peer)))

    def sync(self, peer: PeerId, period: int, *, soon: bool = False) -> None:
        """Send the whole table to `peer`, whose members differ from this peer's, and ask for its table; whichever peer
        it is, at most once in 8 periods, or, if `soon`, once in a period. `period`: the number of the present one."""
        if period >= self._synced + (1 if soon else _SYNC):
            self._synced = period
            self._effects.send(peer, Table(self._table.words(), True))

    def take(self, sender: PeerId, table: Table, suspicion: Suspicion) -> None:
        """Take the words of the table that `sender` has sent, and answer with this peer's table if it is asked for.
        Takes nothing if `sender` is no member here. Raises PeerMisbehaved for too many or malformed words."""
        check_words(table.words, TABLE_MAX)
        if sender not in self._table.entries:
            return
        for word in table.words:
            suspicion.hear(word, sender)
        if table.answer:
            self._synced = suspicion.period
            self._effects.send(sender, Table(self._table.words(), False))
