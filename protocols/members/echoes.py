"""Echoes: each member that adopts a decree, the decision on the next view, tells the others which. So a leader cannot
make two of them go on to two different views.

The leader sends its decree to each member, so a lying leader could send them different ones. Hence a member goes to the
next view only when enough of the members that it reaches have adopted the same decree, or are in its view
(`enough_of`). Any two sets of so many of r members have more than (r - 1) // 3 in common, and so at least one honest
member. This is the echo of Bracha, "Asynchronous Byzantine agreement protocols" (1987). It holds where fewer than a
third of the members lie, and the others hear each other within a patience. No protocol without signatures does better
(Pease, Shostak and Lamport, "Reaching agreement in the presence of faults", 1980): of three members, none can tell
which of the two others lies.

A ballot has one proposer, and an honest proposer has one decree for it. Where more than (r - 1) // 3 members tell of
another decree under the ballot of this peer's decree, the proposer lied: it is reported, and if r > 3 this peer accuses
it (`edges`), so that another member leads. If r <= 3, it is only reported, because the other member may be the liar.

Cost: a message of three numbers from each member to each other one, to about 32 of them in a larger view. They
travel while the leader collects the adoptions and announces the result, so they cost no time.
On failure: a member whose echo has not come is asked (`hearsay`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgpack

from ..channel import Channel, Envelope
from ..testpoints import sometimes
from ..transport import PeerId
from ..wire.frames import message
from ..wire.schema import fields_of, plain_fields
from .messages import MEMBERS
from .roster import Roster
from .view import Decree, View

RANKS = 1 << 16
"""A ballot is a counter times this, plus its proposer's rank: no two proposers ever use the same one."""
ASKED_MAX = 32
_KEPT = 4


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Echo:
    """Tells another member that the sender has adopted, under `ballot`, the decree with this `mark` (`mark_of`)."""

    generation: int
    ballot: int
    mark: int


def mark_of(decree: Decree) -> int:
    """A hash of the decree, 63 bits, above 0: it identifies the decree in messages."""
    packed: bytes = msgpack.packb(plain_fields(decree, fields_of(Decree)))
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little") >> 1 or 1


def proposer_of(ids: Sequence[PeerId], ballot: int) -> PeerId | None:
    """The member of the view with these `ids` that may propose under `ballot`; None: there is none."""
    rank = ballot % RANKS
    return ids[rank] if ballot > 0 and rank < len(ids) else None


def enough_of(reached: int) -> int:
    """How many of the `reached` members have to tell of one decree before one of them goes on to its view. The member
    that counts is included in both numbers."""
    return (reached + _liars(reached)) // 2 + 1


def honest_of(reached: int) -> int:
    """The least number of honest members among any `enough_of(reached)` of the `reached` ones, where fewer than a third
    of all lie."""
    return enough_of(reached) - _liars(reached)


def _liars(reached: int) -> int:
    """The most members of so many of which any number may lie."""
    return max(0, reached - 1) // 3


def partners(peers: Collection[PeerId], me: PeerId) -> list[PeerId]:
    """The other peers that the peer `me` sends its echoes to and asks: all of them where they are few, else a random
    choice of about 32 of them. The choice depends on the two ids alone, so each of two peers is a partner of the other
    or neither is. The graph of all partners is random, so that every large part of it has many edges to the rest."""
    others = [peer for peer in peers if peer != me]
    if len(others) <= ASKED_MAX:
        return others
    below = int(ASKED_MAX / len(others) * (1 << 32))
    return [peer for peer in others if _lot(*sorted((peer, me))) < below]


def _lot(*pair: PeerId) -> int:
    return int.from_bytes(blake2b(" ".join(pair).encode(), digest_size=4).digest(), "little")


@dataclass(frozen=True, slots=True)
class _Own:
    """What this peer has adopted last: the `mark` of a decree of `proposer`, under `ballot`, in `view`."""

    view: View
    ballot: int
    mark: int
    proposer: PeerId


class Echoes:
    """The echoes that one peer has sent and heard in the present view. It reports a proposer that echoes prove to lie,
    and accuses it where another member may lead."""

    def __init__(self, channel: Channel, roster: Roster) -> None:
        self._channel, self._roster = channel, roster
        self._said: defaultdict[PeerId, deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=_KEPT))
        """The last ballots and marks of each member."""
        self._own: _Own | None = None
        self._against: set[PeerId] = set()
        """The members that tell of another decree under the ballot of `_own`."""
        self.liars: set[PeerId] = set()
        """The members of the view that echoes, in this view or an earlier one, have proved to lie."""
        self.on_echo: list[Callable[[PeerId], None]] = []
        """Called with each member of which an echo in this view has arrived."""
        channel.on(Echo, self._on_echo)

    def begin(self) -> None:
        """Forget the echoes of the last view, to be called when the roster has gone on to the next one. This peer's own
        last adoption is kept, because echoes on it may still come."""
        self._said.clear()
        self.liars.intersection_update(self._roster.view.ids)

    def adopted(self, ballot: int, decree: Decree, proposer: PeerId) -> None:
        """Record that this peer has adopted `decree` of `proposer` under `ballot`, and report the proposer if echoes
        prove that it lied."""
        mark = mark_of(decree)
        self._own = _Own(self._roster.view, ballot, mark, proposer)
        self._against = {peer for peer, said in self._said.items() if any(_differ(*one, ballot, mark) for one in said)}
        self._judge()

    def tell(self) -> None:
        """Send an echo of this peer's last adoption to its partners in the view that it reaches (`hearers`), except to
        the proposer. Does nothing unless this peer is a member of the view and has adopted a decree in it. To be called
        once the adoption is written to disk (`Acceptor.keep`): a restarted process must not contradict the echo."""
        own, roster = self._own, self._roster
        if own is not None and own.view is roster.view and roster.id in own.view.ids:
            for peer in self.hearers(own.view):
                if peer != own.proposer:
                    self._channel.post(peer, Echo(own.view.generation, own.ballot, own.mark))

    def hearers(self, view: View) -> list[PeerId]:
        """This peer's partners in `view`, except those that the view lists as apart from it."""
        me = self._roster.id
        return [peer for peer in partners(view.ids, me) if not view.are_apart(peer, me)]

    def same(self, mark: int) -> set[PeerId]:
        """The members whose last echo in this view is of the decree with this mark."""
        return {peer for peer, said in self._said.items() if said[-1][1] == mark}

    def tellers(self, decree: Decree) -> dict[PeerId, int]:
        """The members whose last echoes in this view tell that they adopted `decree`, and the highest ballot under
        which each did."""
        mark, told = mark_of(decree), dict[PeerId, int]()
        for peer, said in self._said.items():
            if ballots := [ballot for ballot, other in said if other == mark]:
                told[peer] = max(ballots)
        return told

    def may_hold(self) -> bool:
        """Whether so many members have adopted the decree that this peer adopted last, under the same ballot, that one
        may have gone on to its view. They are more than half, so no honest member proposes another decree after that.
        In a view of more than about 32 members this peer hears of its partners only, and judges by these: they are a
        random choice, so it errs seldom where much more or much less than that share has adopted it. False if this peer
        has adopted nothing in this view, or votes for a former life."""
        adopted, counted = self._adopters()
        return adopted > 0 and adopted >= enough_of(counted)

    def is_chosen(self) -> bool:
        """Whether more than half of the members that this peer hears of (`may_hold`) have adopted the decree that it
        adopted last, under the same ballot, so that its proposer, if it is honest, proposes no other decree. Two groups
        may find this of two decrees of a liar. False as for `may_hold`."""
        adopted, counted = self._adopters()
        return 2 * adopted > counted

    def _adopters(self) -> tuple[int, int]:
        """The number of members that have adopted this peer's last adoption, under the same ballot, as far as it knows;
        and the number of those that it hears of. Both 0 if it votes for a former life, which hears no echoes."""
        own, roster = self._own, self._roster
        if own is None or own.view is not roster.view or roster.id not in own.view.ids:
            return 0, 0
        counted = self._counted(own.proposer)
        adopted = {peer for peer, said in self._said.items() if peer in counted and (own.ballot, own.mark) in said}
        return len(adopted | {own.proposer, roster.id}), len(counted)

    def is_silent(self, peer: PeerId) -> bool:
        """Whether no echo of `peer` has arrived in this view."""
        return peer not in self._said

    def by_another(self, decree: Decree, proposer: PeerId) -> bool:
        """Whether third members say that they have adopted `decree` from another proposer than `proposer`: so many that
        one of them is honest if `proposer` lies."""
        mark, counted = mark_of(decree), self._counted(proposer)
        told = [
            peer
            for peer, said in self._said.items()
            if peer in counted - {proposer}
            and any(other == mark and proposer_of(self._roster.view.ids, ballot) != proposer for ballot, other in said)
        ]
        return len(told) >= max(1, _liars(len(counted)))

    def _counted(self, proposer: PeerId) -> set[PeerId]:
        """The members whose adoptions this peer hears of: its partners, itself, and `proposer`, which asks it."""
        return {proposer, self._roster.id, *partners(self._roster.view.ids, self._roster.id)}

    def _on_echo(self, envelope: Envelope) -> None:
        echo, sender, view, own = envelope.message, envelope.sender, self._roster.view, self._own
        view.check_sense(echo.generation)
        ours = own is not None and echo.generation == own.view.generation and sender in own.view.ids
        new = ours and sender not in self._against
        if own is not None and new and _differ(echo.ballot, echo.mark, own.ballot, own.mark):
            self._against.add(sender)
            self._judge()
        if echo.generation == view.generation and sender in view.ids:
            self._said[sender].append((echo.ballot, echo.mark))
            for told in self.on_echo:
                told(sender)

    def _judge(self) -> None:
        """Report the proposer if so many tell of another decree that it lied."""
        own, roster = self._own, self._roster
        if own is None or own.proposer == roster.id:
            return
        there = [peer for peer in self.hearers(own.view) if self._channel.endpoint.is_lost(peer) is None]
        if not self._against or len(self._against) <= _liars(1 + len(there)):
            return
        sometimes("a leader told two members two decrees")
        others = ", ".join(sorted(own.view.name(peer) for peer in self._against))
        why = f"told {others} of another view than this peer under one ballot"
        if len(there) < 3:
            self._channel.endpoint.report(own.proposer, f"{why}, or {others} lies")
        else:
            self._channel.endpoint.report(own.proposer, why)
            self.liars.add(own.proposer)
            if roster.coordinator == own.proposer and roster.id in roster.view.ids:
                roster.missed(own.proposer, f"it {why}")


def _differ(ballot: int, mark: int, other_ballot: int, other_mark: int) -> bool:
    return ballot == other_ballot and mark != other_mark
