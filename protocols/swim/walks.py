"""Walks: how a peer with too few links finds others, wherever in the run they are.

A walk is a message that goes a few random steps along links. The peer at its end sends its own description back along
the same path. So everything goes over links that exist, and on each link a neighbour vouches for the peer that is told
of.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ..members.view import Member
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .acquaintances import Acquaintances
from .effects import Effects
from .member_table import MemberTable
from .messages import Found, Walk
from .words import check_member

_STEPS = 6
_WALKS_MAX = 256
"""The most walks that a peer passes on in a period, out and back together."""


class Walks:
    """Begins and passes on walks for one peer. `found` is called with the peer at the end of a walk that this peer
    began."""

    def __init__(
        self,
        table: MemberTable,
        acquaintances: Acquaintances,
        effects: Effects,
        chance: random.Random,
        found: Callable[[Member], None],
    ) -> None:
        self._table, self._acquaintances, self._effects = table, acquaintances, effects
        self._chance, self._on_found = chance, found
        self._passed_on = 0

    def begin_period(self) -> None:
        """Note that a period begins: the limit on walks in a period begins anew."""
        self._passed_on = 0

    def begin(self) -> None:
        """Begin a walk at a random neighbour. There has to be a neighbour."""
        me = self._table.me
        self._effects.send(self._chance.choice(list(self._table.entries)), Walk(me, _STEPS, (me.id,)))

    def walk(self, sender: PeerId, walk: Walk) -> None:
        """Handle a walk from `sender`: pass it on to a random neighbour that it has not passed. After its last step, or
        where there is no such neighbour, answer it and keep the seeker as an acquaintance, unless the seeker is a
        neighbour already. The walk is dropped if it has been here before, if it comes neither from a neighbour nor from
        a seeker that is an acquaintance, or if too many walks and answers have come in this period. Raises
        PeerMisbehaved for one that is too long or not from `sender`, or without a valid seeker."""
        me, path, links = self._table.me.id, walk.path, self._table.entries
        check_member(walk.seeker)
        if walk.steps + len(path) > _STEPS + 1 or not path or (path[0], path[-1]) != (walk.seeker.id, sender):
            raise PeerMisbehaved(f"passed on a walk of {len(path)} steps that does not come from it")
        vouched = sender in links or (self._acquaintances.vouched(sender) and len(path) == 1)
        if not vouched or self._passed_on >= _WALKS_MAX or me in path:
            return
        self._passed_on += 1
        ahead = [peer for peer in links if peer not in path]
        if walk.steps > 0 and ahead:
            self._effects.send(self._chance.choice(ahead), Walk(walk.seeker, walk.steps - 1, (*path, me)))
        elif walk.seeker.id not in links:
            self._acquaintances.vouch(walk.seeker)
            self._effects.send(sender, Found(self._table.me, path))

    def found(self, sender: PeerId, found: Found) -> None:
        """Handle the answer to a walk: pass it back, or, if this peer began the walk, keep the finder as an
        acquaintance and call the function `found`. The answer is dropped if `sender` is no neighbour, or if too many
        walks and answers have come in this period. Raises PeerMisbehaved for one that did not come this way, or is
        without a valid finder."""
        check_member(found.finder)
        if not 0 < len(found.path) <= _STEPS + 1 or found.path[-1] != self._table.me.id:
            raise PeerMisbehaved(f"passed back a walk of {len(found.path)} steps that did not come this way")
        if sender not in self._table.entries or self._passed_on >= _WALKS_MAX:
            return
        self._passed_on += 1
        if len(found.path) > 1:
            self._effects.send(found.path[-2], Found(found.finder, found.path[:-1]))
        else:
            self._acquaintances.vouch(found.finder)
            self._on_found(found.finder)
