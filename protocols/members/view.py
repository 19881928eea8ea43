"""Views: the members of a run in each generation, and the decree by which a change goes from one view to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ..addresses import NOWHERE
from ..group import Group, check_sense, may_follow
from ..limits import VIEW_BYTES_MAX, VIEW_MEMBERS_MAX
from ..transport import PeerId
from .attributes import Attributes as Attributes
from .edge import Edge as Edge
from .invitation import Invitation

_MEMBER_BYTES = 59


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the state that the members share. The attached conversation numbers it; the membership uses only the
    order of the numbers. `fingerprint`: differs where peers have made different states of the same number. (0, 0):
    there is no shared state."""

    number: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Member:
    """A peer as a view lists it. `address`: where it is dialled; `NOWHERE`: it cannot be. `since`: the generation in
    which it became a member, or a learner; the most senior member that stays coordinates (`View.by_seniority`).
    `machine`: peers that can share memory on one machine have the same value; "": this one cannot. `life`: a random
    number that each process draws, and draws anew when it joins anew: a new life is not bound by the promises of the
    former one."""

    id: PeerId
    name: str
    address: str
    attributes: Attributes
    since: int
    machine: str = ""
    life: int = 0

    @property
    def dialable(self) -> bool:
        """Whether other peers can connect to this one."""
        return self.address != NOWHERE

    @property
    def rank(self) -> tuple[int, PeerId]:
        """The key by which members are sorted; a member's rank is its place in that order."""
        return self.attributes.data_shard, self.id

    def of_capacity(self, capacity: int) -> Member:
        """A copy of this member with that capacity."""
        return replace(self, attributes=replace(self.attributes, capacity=capacity))

    @property
    def nbytes(self) -> int:
        """The approximate size of this member in a message, in bytes."""
        texts = (self.id, self.name, self.address, self.machine)
        return _MEMBER_BYTES + self.attributes.nbytes + sum(len(text.encode()) for text in texts)


@dataclass(frozen=True)
class View:
    """The members of one generation, in rank order. `started`: enough members have gathered for the run to begin.
    `learners`: newcomers that fetch the state; they have no vote and no rank until a later view has them among its
    members. `apart`: pairs of members that cannot reach each other; a conversation sends nothing between these.
    `invitation`: the present invite; None: nobody may join by invite. `let_in`: marks of the keys that were let in by
    this invite or an earlier one."""

    generation: int
    members: tuple[Member, ...]
    started: bool
    learners: tuple[Member, ...] = ()
    apart: tuple[Edge, ...] = ()
    invitation: Invitation | None = None
    let_in: tuple[int, ...] = ()

    @cached_property
    def ids(self) -> tuple[PeerId, ...]:
        """The members' ids, in rank order."""
        return tuple(member.id for member in self.members)

    @cached_property
    def everybody(self) -> tuple[PeerId, ...]:
        """The ids of the members, then of the learners."""
        return (*self.ids, *(learner.id for learner in self.learners))

    @cached_property
    def one_machine(self) -> bool:
        """Whether all members report that they run on the same machine and can share memory there. Learners do not
        count. False without members."""
        return self.group("").one_machine

    def group(self, me: PeerId) -> Group:
        """The members as a group for collectives, in which the rank is that of the peer `me` (-1: it is no member). The
        generation is its epoch, the members' capacities are its bandwidths, and the learners are expected in the next
        group (any peer before the run has started). Groups are cached, because a group caches the shares of its
        vectors."""
        if me not in self._groups:
            self._groups[me] = self._group(me)
        return self._groups[me]

    @cached_property
    def _groups(self) -> dict[PeerId, Group]:
        return {}

    def _group(self, me: PeerId) -> Group:
        rank = {peer: rank for rank, peer in enumerate(self.ids)}
        edges = (sorted((rank[edge.one], rank[edge.other])) for edge in self.apart if {edge.one, edge.other} <= {*rank})
        apart = tuple((low, high) for low, high in sorted(edges))
        bandwidths_Bps = tuple(member.attributes.capacity for member in self.members)
        machines = tuple(member.machine for member in self.members)
        expected = frozenset(learner.id for learner in self.learners) if self.started else None
        return Group(self.ids, self.generation, rank.get(me, -1), apart, bandwidths_Bps, machines, expected)

    def after(self, peer: PeerId, count: int) -> tuple[PeerId, ...]:
        """The `count` members and learners that follow `peer` in a ring of all; fewer where there are fewer. Raises
        ValueError when `peer` is neither."""
        here, ring = self.everybody.index(peer), self.everybody
        return (*ring[here + 1 :], *ring[:here])[:count]

    def are_apart(self, peer: PeerId, other: PeerId) -> bool:
        """Whether the view lists these two as unable to reach each other."""
        return bool(self.apart) and Edge.between(peer, other) in self.apart

    def member(self, peer: PeerId) -> Member | None:
        """The member with that id, in whichever life (`Member.life`); None: there is none. A learner is no member."""
        return next((member for member in self.members if member.id == peer), None)

    def anybody(self, peer: PeerId) -> Member | None:
        """The member or learner with that id; None: there is none."""
        return next((one for one in (*self.members, *self.learners) if one.id == peer), None)

    def name(self, peer: PeerId) -> str:
        """The name of the member or learner with that id; for any other peer the first letters of the id."""
        member = self.anybody(peer)
        return peer[:12] if member is None else member.name

    @cached_property
    def by_seniority(self) -> list[PeerId]:
        """The members' ids, the most senior first. Members that can be dialled go before others. Among equals in this,
        those that fewer members cannot reach go first, because the coordinator, the first of these that is neither gone
        nor leaving, has to reach all; then those that have been members for longer; then those of lower rank."""
        away = Counter(peer for edge in self.apart for peer in (edge.one, edge.other))
        order = sorted(self.members, key=lambda m: (not m.dialable, away[m.id], m.since, *m.rank))
        return [member.id for member in order]

    def majority(self) -> int:
        """The least number of members that is more than half."""
        return len(self.members) // 2 + 1

    def holds(self, member: Member) -> bool:
        """Whether `member` is in the view with the same life, as a member or a learner. A restarted peer has another
        life."""
        known = self.anybody(member.id)
        return known is not None and known.life == member.life

    def may_precede(self, generation: int) -> bool:
        """Whether the view of `generation` may come after this one: it is later, and not absurdly far ahead."""
        return may_follow(generation, self.generation)

    def check_sense(self, generation: int) -> None:
        """Raises PeerMisbehaved when `generation` is further ahead of this view than any honest peer can be."""
        check_sense(generation, self.generation, "generation")

    def has_room(self, member: Member) -> bool:
        """Whether `member` fits into the view in addition to all peers in it, by bytes and by number."""
        known = (*self.members, *self.learners)
        fits = member.nbytes + sum(one.nbytes for one in known) <= VIEW_BYTES_MAX
        return fits and len(known) < VIEW_MEMBERS_MAX


def dialable_of(addresses: Mapping[PeerId, str]) -> tuple[PeerId, ...]:
    """Those peers in `addresses` (by peer, its address) that can be dialled."""
    return tuple(peer for peer, address in addresses.items() if address != NOWHERE)


NAME_LETTERS_MAX = 64
"""The most letters of a member's name."""
NOBODY = View(0, (), False)


@dataclass(frozen=True, slots=True)
class Gone:
    """A member or learner that a peer cannot work with: the reason, and since when, on the loop's clock."""

    why: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Departed:
    """A peer that is in the last view, and is not in the next one or only with a new life; and why. `left`: it left of
    its own will."""

    peer: PeerId
    why: str
    left: bool


@dataclass(frozen=True, slots=True)
class Decree:
    """The decision of a change: the next view; its `base`, the version of the state from which all its members
    continue, and which the `donors` hold; and the peers that have `departed`, 16 at most. `given`: the base existed
    before the run started, as a checkpoint's version does."""

    view: View
    base: Version
    donors: tuple[PeerId, ...]
    departed: tuple[Departed, ...]
    given: bool = False


class Adoption(NamedTuple):
    """The decree that a member has adopted in a generation (None: none), the ballot under which it did, the member that
    proposed it (None: unknown, because a former life adopted it, or there is none), and the time on the loop's clock
    when it did."""

    ballot: int = 0
    decree: Decree | None = None
    proposer: PeerId | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decided:
    """Event for a simulation's checkers: the view of `generation` is decided, even if no other peer has heard of it
    yet. `senior`: its most senior member."""

    generation: int
    members: tuple[PeerId, ...]
    learners: tuple[PeerId, ...] = ()
    started: bool = True
    senior: PeerId = ""


@dataclass(frozen=True, slots=True)
class Followed:
    """Event for a simulation's checkers: this peer goes on to the view of `generation`: one that it is in, or the first
    without it after it has left."""

    generation: int


@dataclass(frozen=True, slots=True)
class Promised:
    """Event for a simulation's checkers: this peer has promised to follow a ballot in the view of `generation`."""

    generation: int


@dataclass(frozen=True, slots=True)
class Answered:
    """Event for a simulation's checkers: this peer, which leads a change or has led one, takes `peer` to be there,
    because it has answered."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Believed:
    """Event for a simulation's checkers: this peer goes on to a view because enough members have adopted its decree.
    `reached`: the number of members whose word counts, with this peer if it is a member. `agree`: how many of them have
    adopted the decree or are in its view, with this peer if it has adopted the decree."""

    reached: int
    agree: int


@dataclass(frozen=True, slots=True)
class HeardOf:
    """Event for a simulation's checkers: this peer, which votes on behalf of a former life, hears that the view of
    `generation` holds. `life`: its life that is a member there; 0: none is."""

    generation: int
    life: int


@dataclass(frozen=True, slots=True)
class Bound:
    """Event for a simulation's checkers: this peer, or a restarted process of it, votes in the view of `generation` for
    the life `life`, and has told, or begins with, the ballot that it has `promised` to follow and that under which it
    has `adopted` a decree; 0: none."""

    life: int
    generation: int
    promised: int
    adopted: int
