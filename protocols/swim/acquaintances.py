"""Acquaintances: the peers that a peer with few links knows beside its neighbours, and whose keys it lets in.

These are its neighbours' neighbours; peers that a walk has brought (`walks`); and newcomers that knocked here, which
asked to be let into the run. Each is let in because a neighbour has vouched for it, that is, has told that it is a
member; or because this peer has let it into the run, or came in by it. Their number is bounded; the oldest are let in
no more.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection

from ..members.view import Member
from ..transport import PeerId
from .dial_limit import DialLimit
from .effects import Effects
from .member_table import MemberTable

_VOUCHED_MAX = 256
"""The most peers beside neighbours and their neighbours that are let in because a neighbour has vouched for them."""


class Acquaintances:
    """The peers that one peer knows beside its neighbours, which are the members in `table`. It lets in the keys of
    those for which a neighbour has vouched, and names peers to ask for links or for help with a probe. `settle`, called
    once a period, lets in no more the keys for which nobody vouches. `dial_limit` bounds the connections to peers
    without a link; `chance` shuffles the helpers."""

    def __init__(self, table: MemberTable, effects: Effects, dial_limit: DialLimit, chance: random.Random) -> None:
        self._table, self._effects, self._dial_limit, self._chance = table, effects, dial_limit, chance
        self._near: dict[PeerId, tuple[Member, ...]] = {}
        """The neighbours of each neighbour, as it has told."""
        self._vouched: OrderedDict[PeerId, Member] = OrderedDict()
        """Peers that came by a walk, have knocked, were neighbours, or are neighbours of former neighbours; the latest
        last."""
        self._called: set[PeerId] = set()
        """Peers without a link to which this one has opened a connection."""
        self._let_in: set[PeerId] = set()
        self._new = False
        """Whether keys were let in since `settle` last refused the oldest ones."""

    def vouch(self, member: Member) -> None:
        """Let in the key of `member`, for which a neighbour has vouched, or which this peer has let into the run, and
        keep the member as an acquaintance, in place of the oldest if there are too many. Nothing if it is this peer or
        a neighbour."""
        if member.id == self._table.me.id or member.id in self._table.entries:
            return
        self._vouched[member.id], self._new = member, True
        self._vouched.move_to_end(member.id)
        self._effects.reach(member)
        if len(self._vouched) > _VOUCHED_MAX:
            self._vouched.popitem(last=False)

    def near(self, neighbour: PeerId, members: tuple[Member, ...]) -> None:
        """Note that `neighbour` has links with `members`, in place of those that it reported before, and let their keys
        in."""
        self._near[neighbour], self._new = members, True
        for member in members:
            if member.id != self._table.me.id and member.id not in self._table.entries:
                self._effects.reach(member)

    def linked(self, peer: PeerId) -> None:
        """Note that there is a link with `peer`: it is a neighbour now, and no acquaintance."""
        self._vouched.pop(peer, None)
        self._called.discard(peer)
        self._new = True

    def vouched(self, peer: PeerId) -> bool:
        """Whether `peer` is an acquaintance that was passed to `vouch`, and is not only known as a neighbour's
        neighbour."""
        return peer in self._vouched

    def knows(self, peer: PeerId) -> bool:
        """Whether `peer` is, as far as this peer has heard, a member of the run, or was one."""
        known = peer in self._table.entries or peer in self._vouched or peer in self._table.graves
        return known or any(one.id == peer for members in self._near.values() for one in members)

    def candidates(self, taken: Collection[PeerId]) -> list[Member]:
        """Peers that may be asked for a link: those that were passed to `vouch`, and neighbours that were lost; without
        those in `taken`."""
        known = {peer: grave.member for peer, grave in self._table.graves.items() if not grave.left} | self._vouched
        return [member for peer, member in known.items() if peer not in taken]

    def helpers(self, target: PeerId, count: int) -> list[PeerId]:
        """At most `count` neighbours of `target` that may help to probe it. Those to which this peer has a connection
        come first; a new connection is counted against the limit on dials. If the limit is reached, fewer than `count`
        are returned."""
        near = [member.id for member in self._near.get(target, ()) if member.id != self._table.me.id]
        self._chance.shuffle(near)
        near.sort(key=lambda peer: peer not in self._table.entries and peer not in self._called)
        return [peer for peer in near[:count] if self.may_call(peer)]

    def may_call(self, peer: PeerId) -> bool:
        """Whether this peer may send to `peer` now. If that needs a new connection, it is counted against the limit on
        dials, and the answer is False when the limit is reached."""
        if peer in self._table.entries or peer in self._called:
            return True
        if not self._dial_limit.take(self._effects.now()):
            return False
        self._called.add(peer)
        return True

    def settle(self) -> None:
        """Keep the neighbours of former neighbours as acquaintances, and let in no more the keys of peers that are now
        neither neighbours, acquaintances nor lost neighbours. Called once a period."""
        entries = self._table.entries
        gone = [peer for peer in self._near if peer not in entries]
        if not gone and not self._new:
            return
        for peer in gone:
            for member in self._near.pop(peer):
                self.vouch(member)
        due = {*entries, *self._vouched, *self._table.graves}
        due.update(member.id for members in self._near.values() for member in members)
        for peer in sorted(self._let_in - due):
            self._called.discard(peer)
            self._effects.lapse(peer)
        self._let_in, self._new = due, False
