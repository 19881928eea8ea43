"""The overlay: which few others a peer has links to, where there are too many to know all.

Each peer wishes `links` links, and has two more at most; each link is one for both of its ends. It probes these peers
alone, and a conversation works with these alone. Each knows its neighbours' neighbours too: they help to probe, and
take the place of neighbours that are lost.

    a newcomer, or a peer with too few links    a walk of random steps along links     Walk
      the peer at the end of it                 tells of itself, back along the path   Found
      then they make a link                                                            Link, Linked
    a peer that gets a link, and has enough     gives another one up                   Unlink
    when the links of a peer change             its neighbours hear of each other      Near

Keys: a peer lets in its neighbours, their neighbours, and those that come by a walk or have knocked, because a
neighbour vouches for each of these. Their number is bounded; the oldest are let in no more.
Source: Leitao, Pereira and Rodrigues, "HyParView: a membership protocol for reliable gossip-based broadcast", DSN 2007,
whose active view these links are. Its passive view, which is filled by shuffles, are the neighbours' neighbours here:
both keys of such a pair were vouched for, so each can call the other.
Cost: a walk of at most 6 steps for a lost link; 1 + `links` descriptions of peers to each neighbour for a changed one.
On failure: a walk that is lost is begun anew in the next period. A peer without any link asks those that it knew.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import TypeVar

from ..members.view import Member
from ..testpoints import sometimes
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .book import Book, Entry
from .dials import Dials
from .judge import Judge
from .messages import Found, Link, Linked, Near, Unlink, Walk
from .outside import Outside
from .words import INCARNATION_MAX, check_member

_T = TypeVar("_T")
SLACK = 2
"""So many links more than it wishes a peer may have."""
_STEPS = 6
_VOUCHED_MAX = 64
"""The most peers beside neighbours and their neighbours that are let in because a neighbour has vouched for them."""
_WALKS_MAX = 256
"""The most walks that a peer passes on in a period."""
_TRIES = 2
"""Walks that a peer begins in a period, at most."""
_PATIENCE = 3
"""Periods that a peer waits for the answer to Link."""
_YOUNG = 4
"""Periods in which the other end of a new link may not know of it yet."""


class Overlay:
    """One peer's links, which are the members in its `book`. `links`: how many it wishes."""

    def __init__(
        self, book: Book, judge: Judge, outside: Outside, dials: Dials, chance: random.Random, links: int
    ) -> None:
        self._book, self._judge, self._outside, self._dials = book, judge, outside, dials
        self._chance, self.links = chance, links
        self.near: dict[PeerId, tuple[Member, ...]] = {}
        """The neighbours of each neighbour, as it has told."""
        self._vouched: OrderedDict[PeerId, Member] = OrderedDict()
        """Peers that came by a walk, have knocked, or are former neighbours or neighbours of these: the latest last."""
        self._asked: dict[PeerId, int] = {}
        """The peers that this one has asked for a link, and the period in which it did."""
        self._called: set[PeerId] = set()
        """Peers without a link to which this one has opened a connection."""
        self._let_in: set[PeerId] = set()
        self._walks = 0
        """Walks passed on in this period."""

    # Period by period

    def begin_period(self) -> None:
        """Look for links if there are too few, and tell neighbours of changes."""
        entries, period = self._book.entries, self._judge.period
        self._walks = 0
        self._asked = {peer: since for peer, since in self._asked.items() if period - since < _PATIENCE}
        changed = self._settle()
        if changed:
            near = Near(tuple(entry.member for entry in self._book))
            for peer in entries:
                self._outside.send(peer, near)
        missing = self.links - len(entries) - len(self._asked)
        for _ in range(min(missing, _TRIES)):
            self._seek()

    def _settle(self) -> bool:
        """Forget what was of former neighbours, and let in no more keys than due. Returns whether neighbours have
        changed since the last period."""
        entries = self._book.entries
        for peer in [peer for peer in self.near if peer not in entries]:
            for member in self.near.pop(peer):
                self.vouch(member)
        due = {*entries, *self._vouched, *self._book.graves}
        due.update(member.id for members in self.near.values() for member in members)
        for peer in sorted(self._let_in - due):
            self._called.discard(peer)
            self._outside.lapse(peer)
        self._let_in = due
        changed = self._judge.changed
        self._judge.changed = False
        return changed

    def _seek(self) -> None:
        """Look for one more link: by a walk, or, without any link, at a peer that this one knew."""
        me = self._book.me
        if self._book.entries:
            self._outside.send(self._any(list(self._book.entries)), Walk(me, _STEPS, (me.id,)))
            return
        known = {peer: grave.member for peer, grave in self._book.graves.items() if not grave.left} | self._vouched
        if candidates := [member for peer, member in known.items() if peer not in self._asked]:
            sometimes("a peer without links asks those that it knew")
            self._ask(self._any(candidates))

    def look_for_lost(self) -> None:
        """Ask a lost neighbour for a link again: a partition may have healed."""
        grave = self._book.next_grave()
        if grave is not None and grave.member.id not in self._asked:
            self._ask(grave.member)

    def _ask(self, member: Member) -> None:
        if self._may_call(member.id):
            self._asked[member.id] = self._judge.period
            self._outside.reach(member)
            self._outside.send(member.id, Link(self._book.me, self._book.incarnation, len(self._book)))

    def _may_call(self, peer: PeerId) -> bool:
        """Whether to send to `peer` now: a new connection counts."""
        if peer in self._book.entries or peer in self._called:
            return True
        if not self._dials.take(self._outside.now()):
            return False
        self._called.add(peer)
        return True

    def _any(self, among: list[_T]) -> _T:
        return among[self._chance.randrange(len(among))]

    # Who is who

    def vouch(self, member: Member) -> None:
        """A neighbour vouches for `member`: let it in."""
        if member.id == self._book.me.id or member.id in self._book.entries:
            return
        self._vouched[member.id] = member
        self._vouched.move_to_end(member.id)
        self._outside.reach(member)
        if len(self._vouched) > _VOUCHED_MAX:
            self._vouched.popitem(last=False)

    def helpers(self, target: PeerId, count: int) -> list[PeerId]:
        """Other neighbours of `target`, which may help to probe it."""
        near = [member.id for member in self.near.get(target, ()) if member.id != self._book.me.id]
        self._chance.shuffle(near)
        near.sort(key=lambda peer: peer not in self._book.entries and peer not in self._called)
        return [peer for peer in near[:count] if self._may_call(peer)]

    def count(self, peer: PeerId) -> int:
        """How many links that neighbour has, as far as it has told."""
        return len(self.near.get(peer, ()))

    def _knows(self, peer: PeerId) -> bool:
        known = peer in self._book.entries or peer in self._vouched or peer in self._book.graves
        return known or any(one.id == peer for members in self.near.values() for one in members)

    # Messages

    def heard(self, sender: PeerId, message: object) -> None:
        """Take a message of the overlay. Raises PeerMisbehaved for one that no honest peer can send."""
        if isinstance(message, Walk):
            self._walk(sender, message)
        elif isinstance(message, Found):
            self._found(sender, message)
        elif isinstance(message, Link):
            self._link(sender, message)
        elif isinstance(message, Linked):
            self._linked(sender, message)
        elif isinstance(message, Unlink) and (entry := self._book.entries.get(sender)) is not None:
            self._give_up(entry)
        elif isinstance(message, Near):
            self._take_near(sender, message)

    def _walk(self, sender: PeerId, walk: Walk) -> None:
        me, path = self._book.me.id, walk.path
        check_member(walk.seeker)
        if walk.steps + len(path) > _STEPS + 1 or not path or (path[0], path[-1]) != (walk.seeker.id, sender):
            raise PeerMisbehaved(f"passed on a walk of {len(path)} steps that does not come from it")
        vouched = sender in self._book.entries or (sender in self._vouched and len(path) == 1)
        if not vouched or self._walks >= _WALKS_MAX or me in path:
            return
        self._walks += 1
        ahead = [peer for peer in self._book.entries if peer not in path]
        if walk.steps > 0 and ahead:
            self._outside.send(self._any(ahead), Walk(walk.seeker, walk.steps - 1, (*path, me)))
        elif walk.seeker.id not in self._book.entries:
            self.vouch(walk.seeker)
            self._outside.send(sender, Found(self._book.me, path))

    def _found(self, sender: PeerId, found: Found) -> None:
        check_member(found.finder)
        if not 0 < len(found.path) <= _STEPS + 1 or found.path[-1] != self._book.me.id:
            raise PeerMisbehaved(f"passed back a walk of {len(found.path)} steps that did not come this way")
        if sender not in self._book.entries or self._walks >= _WALKS_MAX:
            return
        self._walks += 1
        if len(found.path) > 1:
            self._outside.send(found.path[-2], Found(found.finder, found.path[:-1]))
            return
        self.vouch(found.finder)
        wishes = len(self._book) + len(self._asked) < self.links
        if wishes and found.finder.id not in (*self._book.entries, *self._asked):
            self._ask(found.finder)

    def _link(self, sender: PeerId, link: Link) -> None:
        _check(sender, link.member, link.incarnation)
        entry, back = self._book.entries.get(sender), sender in self._book.graves
        yes = self._knows(sender) and not self._book.shuns(sender, self._outside.now())
        if yes and (entry is None or entry.member.life != link.member.life):
            yes = self._makes_room(link.links, back=back)
            if yes:
                self._enter(link.member, link.incarnation)
        self._outside.send(sender, Linked(yes, self._book.me, self._book.incarnation))

    def _makes_room(self, links: int, *, back: bool) -> bool:
        """Whether there is room for a link to a peer that has so many. One more than enough takes the place of the link
        to the neighbour with most, if that has clearly more than the other peer; a lost neighbour that is `back` takes
        it in any case."""
        if len(self._book) < self.links + SLACK:
            return True
        entry = max(self._book, key=lambda one: (self.count(one.member.id), one.member.id))
        if not back and self.count(entry.member.id) <= links + 1:
            return False
        self.unlink(entry)
        return True

    def _linked(self, sender: PeerId, linked: Linked) -> None:
        _check(sender, linked.member, linked.incarnation)
        if self._asked.pop(sender, None) is None or not linked.yes:
            return
        entry = self._book.entries.get(sender)
        if entry is not None and entry.member.life == linked.member.life:
            return
        if entry is None and len(self._book) >= self.links + SLACK:
            self._outside.send(sender, Unlink())
        else:
            self._enter(linked.member, linked.incarnation)

    def _enter(self, member: Member, incarnation: int) -> None:
        self._vouched.pop(member.id, None)
        self._asked.pop(member.id, None)
        self._judge.enter(member, incarnation, member.id)

    def unlink(self, entry: Entry) -> None:
        """Give up a link."""
        self._outside.send(entry.member.id, Unlink())
        self._give_up(entry)

    def _give_up(self, entry: Entry) -> None:
        self._judge.unlink(entry)
        self.vouch(entry.member)

    def unknown_to(self, peer: PeerId) -> None:
        """A neighbour does not know of its link with this peer."""
        entry = self._book.entries.get(peer)
        if entry is not None and self._judge.period - entry.came > _YOUNG:
            self._give_up(entry)

    def _take_near(self, sender: PeerId, near: Near) -> None:
        if len(near.members) > self.links + SLACK:
            raise PeerMisbehaved(f"has {len(near.members)} links, at most {self.links + SLACK} can be")
        for member in near.members:
            check_member(member)
        if sender in self._book.entries:
            self.near[sender] = near.members
            for member in near.members:
                if member.id != self._book.me.id and member.id not in self._book.entries:
                    self._outside.reach(member)


def _check(sender: PeerId, member: Member, incarnation: int) -> None:
    check_member(member)
    if member.id != sender or incarnation > INCARNATION_MAX:
        raise PeerMisbehaved(f"speaks of a link of incarnation {incarnation} in the name of {member.id:.12}")
