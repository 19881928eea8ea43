"""The overlay: which few other peers a peer has links to, where there are too many to know all.

Each peer wishes for `links` links, and may have two more, or six more for a moment. A link belongs to both of its ends.
A peer probes only its neighbours, the peers at the other ends of its links, and a conversation works with these alone.
Each peer knows its neighbours' neighbours too: they help to probe, and take the place of neighbours that are lost
(`acquaintances`).

    a newcomer                                asks its contact for a link first         Link, Linked
    a peer with too few links                 looks for others by walks (`walks`)       Walk, Found
    a peer that is asked, and has enough      puts the other amid one of its links      Instead, Unlink
      or, when very many ask at once          refers it to a neighbour                  Vouch
    when the links of a peer change           its neighbours hear of each other         Near

To put a newcomer amid the link A-B is to replace the link by A-newcomer and newcomer-B.

Source: Leitao, Pereira and Rodrigues, "HyParView: a membership protocol for reliable gossip-based broadcast", DSN 2007,
whose active view these links are. In place of its passive view, which is filled by shuffles, there are the neighbours'
neighbours: both keys of such a pair were vouched for, so each can connect to the other.

Cost: a walk of at most 6 steps for a lost link; 1 + `links` descriptions of peers to each neighbour for a changed one.
On failure: a lost walk is begun anew in the next period. A peer without any link asks peers that it knew for one.
"""

from __future__ import annotations

import random

from ..members.view import Member
from ..testpoints import sometimes
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .acquaintances import Acquaintances
from .dial_limit import DialLimit
from .effects import Effects
from .member_table import Entry, MemberTable
from .messages import Found, Instead, Link, Linked, Near, Unlink, Vouch, Walk
from .suspicion import Suspicion
from .walks import Walks
from .words import INCARNATION_MAX, check_member

SLACK, MOST = 2, 6
"""How many more links than it wishes a peer may have: lasting, and for a moment."""
_TRIES = 2
"""The most walks that a peer begins in a period."""
_IN_VAIN = 4
"""Of this number of periods, there is one in which a peer with too few links asks a peer that it knew, and begins no
walk."""
_PATIENCE, _WAY_IN = 3, 16
"""Periods for which a peer waits for the answer to Link; and periods for which it goes on asking its contact for
one."""
_YOUNG = 4
"""Periods for which the other end of a new link may not know of it yet."""
_INSTEAD_MAX = 16


class Overlay:
    """Makes and gives up one peer's links, so that it has about `links` of them; their other ends are the members in
    its `table`."""

    def __init__(
        self,
        table: MemberTable,
        suspicion: Suspicion,
        effects: Effects,
        dial_limit: DialLimit,
        chance: random.Random,
        links: int,
    ) -> None:
        self._table, self._suspicion, self._effects = table, suspicion, effects
        self._chance, self.links = chance, links
        self.acquaintances = Acquaintances(table, effects, dial_limit, chance)
        self._walks = Walks(table, self.acquaintances, effects, chance, self._found)
        self._asked: dict[PeerId, int] = {}
        """The peers that this one has asked for a link, and the period in which it did."""
        self._instead: dict[PeerId, PeerId] = {}
        """Peer that is to ask for a link -> the neighbour whose link it is to replace."""
        self._way_in: Member | None = None
        """The peer through which this one has entered the run, until there is a link with it; None: there is one, or
        none is asked for any more."""
        self._lacks = 0
        """For how many periods this peer has had too few links; below 0: too many."""
        self.rests = False
        """Whether this peer needs no more links, because it has finished."""

    def begin(self, contact: Member) -> None:
        """Ask `contact`, which has let this peer in, for the first link. If two newcomers linked with each other first,
        neither would be linked to the rest of the run."""
        self.acquaintances.vouch(contact)
        self._way_in = contact
        self._ask(contact)

    # Period by period

    def begin_period(self) -> None:
        """Begin a period: tell the neighbours of changed links; look for more links if there are fewer than `links`,
        with those that were asked for, unless this peer `rests`, because it has finished; give up a random link if
        there have been more than two above `links` for more than three periods."""
        entries, period = self._table.entries, self._suspicion.period
        self._walks.begin_period()
        self.acquaintances.settle()
        if self._suspicion.changed:
            self._suspicion.changed = False
            near = Near(tuple(entry.member for entry in self._table))
            for peer in entries:
                self._effects.send(peer, near)
        self._asked = {peer: since for peer, since in self._asked.items() if period - since < _PATIENCE}
        missing = self.links - len(entries) - len(self._asked)
        if missing > 0:
            self._lacks = max(0, self._lacks) + 1
        else:
            self._lacks = min(0, self._lacks) - 1 if len(entries) > self.links + SLACK else 0
        if -self._lacks > _PATIENCE:
            self.unlink(self._chance.choice(list(entries.values())))
        if self._way_in is not None and self._way_in.id not in self._asked:
            self._ask(self._way_in)
            self._way_in = None if self._lacks > _WAY_IN else self._way_in
        for _ in range(0 if self.rests else min(missing, _TRIES)):
            self._seek()

    def _seek(self) -> None:
        """Look for one more link: by a walk, or, where walks lead nowhere, by asking a peer that this one knew."""
        if self._table.entries and self._lacks % _IN_VAIN:
            self._walks.begin()
        elif candidates := self.acquaintances.candidates({*self._asked, *self._table.entries}):
            sometimes("a peer asks one that it knew for a link")
            self._ask(self._chance.choice(candidates))

    def look_for_lost(self) -> None:
        """Ask one lost neighbour, the next in turn, for a link again: a partition may have healed. Nothing if there is
        none, or if it was asked already."""
        grave = self._table.next_grave()
        if grave is not None and grave.member.id not in self._asked:
            self._ask(grave.member)

    def _ask(self, member: Member) -> None:
        if self.acquaintances.may_call(member.id):
            self._asked[member.id] = self._suspicion.period
            self._effects.reach(member)
            self._effects.send(member.id, Link(self._table.me, self._table.incarnation, len(self._table)))

    def _found(self, finder: Member) -> None:
        wishes = len(self._table) + len(self._asked) < self.links
        if wishes and finder.id not in (*self._table.entries, *self._asked):
            self._ask(finder)

    # Messages

    def heard(self, sender: PeerId, message: object) -> None:
        """Handle a message of the overlay from `sender`. Raises PeerMisbehaved for one that no honest peer can send."""
        if isinstance(message, Walk):
            self._walks.walk(sender, message)
        elif isinstance(message, Found):
            self._walks.found(sender, message)
        elif isinstance(message, Link):
            self._link(sender, message)
        elif isinstance(message, Linked):
            self._linked(sender, message)
        elif isinstance(message, Instead):
            self._take_instead(sender, message)
        elif isinstance(message, Near):
            self._take_near(sender, message)
        elif isinstance(message, Vouch):
            check_member(message.newcomer)
            if sender in self._table.entries:
                self.acquaintances.vouch(message.newcomer)
        elif isinstance(message, Unlink) and (entry := self._table.entries.get(sender)) is not None:
            self._give_up(entry)

    def _link(self, sender: PeerId, link: Link) -> None:
        _check(sender, link.member, link.incarnation)
        entry, beside, count = self._table.entries.get(sender), None, len(self._table)
        yes = self.acquaintances.knows(sender) and not self._table.shuns(sender, self._effects.now())
        if yes and (entry is None or entry.member.life != link.member.life):
            if sender in self._instead:
                yes = count < self.links + MOST
            elif count >= self.links + SLACK:
                wishes = link.links < self.links or sender in self._table.graves
                yes = wishes and count < self.links + 2 * SLACK
                beside = self._give_way(link.member) if yes else self._refer(link.member) if wishes else None
            if yes:
                self._enter(link.member, link.incarnation)
        self._effects.send(sender, Linked(yes, self._table.me, self._table.incarnation, beside))
        if yes:
            self._changes_links(sender)

    def _give_way(self, newcomer: Member) -> Member:
        """Put `newcomer` amid a link of this peer, which has enough links. That link is given up only once both new
        links are there, so connected peers stay connected. Returns the neighbour at its other end."""
        entry = self._chance.choice([one for one in self._table if one.member.id != newcomer.id])
        self._effects.send(entry.member.id, Instead(newcomer))
        return entry.member

    def _refer(self, newcomer: Member) -> Member:
        """Refer `newcomer` to a random neighbour, because very many newcomers ask at once, and return that
        neighbour."""
        entry = self._chance.choice([one for one in self._table if one.member.id != newcomer.id])
        self._effects.send(entry.member.id, Vouch(newcomer))
        return entry.member

    def _take_instead(self, sender: PeerId, instead: Instead) -> None:
        check_member(instead.newcomer)
        newcomer = instead.newcomer.id
        if sender in self._table.entries and newcomer not in (sender, self._table.me.id):
            self.acquaintances.vouch(instead.newcomer)
            self._instead[newcomer] = sender
            if len(self._instead) > _INSTEAD_MAX:
                del self._instead[next(iter(self._instead))]
            if newcomer in self._table.entries:
                self._changes_links(newcomer)

    def _changes_links(self, newcomer: PeerId) -> None:
        """There is a link with `newcomer`: give up the link in whose place it was to come."""
        entry = self._table.entries.get(self._instead.pop(newcomer, ""))
        if entry is not None and len(self._table) > self.links:
            self.unlink(entry)

    def _linked(self, sender: PeerId, linked: Linked) -> None:
        _check(sender, linked.member, linked.incarnation)
        if linked.beside is not None:
            check_member(linked.beside)
        if self._asked.pop(sender, None) is None:
            return
        entry, beside = self._table.entries.get(sender), linked.beside
        if linked.yes and (entry is None or entry.member.life != linked.member.life):
            if entry is None and len(self._table) >= self.links + 2 * SLACK:
                self._effects.send(sender, Unlink())
                return
            self._enter(linked.member, linked.incarnation)
            self._changes_links(sender)
        most = self.links + SLACK if linked.yes else self.links - len(self._asked)
        if beside is not None and len(self._table) < most:
            self.acquaintances.vouch(beside)
            if beside.id not in (*self._table.entries, *self._asked):
                self._ask(beside)

    def _enter(self, member: Member, incarnation: int) -> None:
        if self._way_in is not None and self._way_in.id == member.id:
            self._way_in = None
        self._asked.pop(member.id, None)
        self._suspicion.enter(member, incarnation, member.id)
        self.acquaintances.linked(member.id)

    def unlink(self, entry: Entry) -> None:
        """Give up the link with this member, and tell it."""
        self._effects.send(entry.member.id, Unlink())
        self._give_up(entry)

    def _give_up(self, entry: Entry) -> None:
        self._suspicion.unlink(entry)
        self.acquaintances.vouch(entry.member)

    def unknown_to(self, peer: PeerId) -> None:
        """Give up the link with the neighbour `peer`, which does not know of that link, unless the link is new."""
        entry = self._table.entries.get(peer)
        if entry is not None and self._suspicion.period - entry.came > _YOUNG:
            self._give_up(entry)

    def _take_near(self, sender: PeerId, near: Near) -> None:
        most = self.links + MOST
        if len(near.members) > most:
            raise PeerMisbehaved(f"has {len(near.members)} links, at most {most} can be")
        for member in near.members:
            check_member(member)
        if sender in self._table.entries:
            self.acquaintances.near(sender, near.members)


def _check(sender: PeerId, member: Member, incarnation: int) -> None:
    check_member(member)
    if member.id != sender or incarnation > INCARNATION_MAX:
        raise PeerMisbehaved(f"speaks of a link of incarnation {incarnation} in the name of {member.id:.12}")
