"""Views: who takes part, numbered by generation, and what a change of the view decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ..group import Group, may_follow
from ..limits import VIEW_BYTES_MAX, VIEW_MEMBERS_MAX
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .edge import Edge as Edge
from .invitation import Invitation

_MEMBER_BYTES = 57


@dataclass(frozen=True, slots=True)
class Version:
    """A round, and the fingerprint of the state after it."""

    round: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the membership must know of the peer's state. `state`: what it has committed last; `result`: what it has
    computed since, the same as `state` if nothing. `usual_s`: how long a round takes now; 0: not known."""

    state: Version
    result: Version
    usual_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Member:
    """A peer in a view. `data_part`: which part of the data is its own; it also orders the ranks. `since`: the
    generation in which it became a member; the most senior member that is not suspected coordinates. `machine`: what
    it has in common with those on its machine, with whom it can share memory; "" if it cannot. `site`: those with whom
    it averages between rounds have the same; "": nobody has. `bandwidth_Bps`: what its connection carries each way at
    once, as it was known when the view was decided; 0: it was not. `life`: a random number that each process draws,
    and draws anew when it joins anew: the same key with another life has promised nothing of what the former did."""

    id: PeerId
    name: str
    address: str
    data_part: int
    since: int
    machine: str = ""
    site: str = ""
    bandwidth_Bps: int = 0
    life: int = 0

    @property
    def nbytes(self) -> int:
        """About as many bytes as it takes in a message."""
        return _MEMBER_BYTES + sum(
            len(text.encode()) for text in (self.id, self.name, self.address, self.machine, self.site)
        )


@dataclass(frozen=True)
class View:
    """A generation and its members in rank order. `started` once enough have gathered for the first round. `learners`:
    let in since, they fetch the state; they have no vote, no rank and no part in a round until a later view has them
    among its members. `apart`: which members cannot reach each other, so that no sum goes that way. `invitation`: by
    which others may come, None: nobody may. `let_in`: the marks of keys that came by it, or by those before it."""

    generation: int
    members: tuple[Member, ...]
    started: bool
    learners: tuple[Member, ...] = ()
    apart: tuple[Edge, ...] = ()
    invitation: Invitation | None = None
    let_in: tuple[int, ...] = ()

    @cached_property
    def ids(self) -> tuple[PeerId, ...]:
        return tuple(member.id for member in self.members)

    @cached_property
    def everybody(self) -> tuple[PeerId, ...]:
        """Members and learners."""
        return (*self.ids, *(learner.id for learner in self.learners))

    @cached_property
    def one_machine(self) -> bool:
        """Whether all say that they are on the same machine, and can share memory there."""
        return self.group("").one_machine

    def group(self, me: PeerId) -> Group:
        """The members, as `me` sees them. It is made once, as shares of a vector are worked out for it."""
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
        bandwidths_Bps = tuple(member.bandwidth_Bps for member in self.members)
        machines = tuple(member.machine for member in self.members)
        expected = frozenset(learner.id for learner in self.learners) if self.started else None
        return Group(self.ids, self.generation, rank.get(me, -1), apart, bandwidths_Bps, machines, expected)

    def after(self, peer: PeerId, count: int) -> tuple[PeerId, ...]:
        """The next `count` members and learners after `peer`, in a ring."""
        here, ring = self.everybody.index(peer), self.everybody
        return (*ring[here + 1 :], *ring[:here])[:count]

    def are_apart(self, peer: PeerId, other: PeerId) -> bool:
        """Whether these two cannot reach each other, as far as it is agreed on."""
        return Edge.between(peer, other) in self.apart

    def member(self, peer: PeerId) -> Member | None:
        return next((member for member in self.members if member.id == peer), None)

    def anybody(self, peer: PeerId) -> Member | None:
        """The member, or the learner, of that key."""
        return next((one for one in (*self.members, *self.learners) if one.id == peer), None)

    def name(self, peer: PeerId) -> str:
        member = self.anybody(peer)
        return peer[:12] if member is None else member.name

    @cached_property
    def by_seniority(self) -> list[PeerId]:
        """Who reaches all others comes first, as the coordinator has to."""
        away = Counter(peer for edge in self.apart for peer in (edge.one, edge.other))
        return [member.id for member in sorted(self.members, key=lambda m: (away[m.id], m.since, m.data_part, m.id))]

    def majority(self) -> int:
        return len(self.members) // 2 + 1

    def holds(self, member: Member) -> bool:
        """Whether this life of `member` is in it, as a member or a learner."""
        known = self.anybody(member.id)
        return known is not None and known.life == member.life

    def may_precede(self, generation: int) -> bool:
        """Whether a view of `generation` may come after this one."""
        return may_follow(generation, self.generation)

    def check_sense(self, generation: int) -> None:
        """Raises PeerMisbehaved when nobody can know of a view of `generation`, and this one."""
        if generation > self.generation and not self.may_precede(generation):
            raise PeerMisbehaved(f"spoke of generation {generation}, this is {self.generation}")

    def has_room(self, member: Member) -> bool:
        """Whether `member` fits in beside all others."""
        known = (*self.members, *self.learners)
        fits = member.nbytes + sum(one.nbytes for one in known) <= VIEW_BYTES_MAX
        return fits and len(known) < VIEW_MEMBERS_MAX


NAME_LETTERS_MAX = 64
"""Of a member's name."""
NOBODY = View(0, (), False)


@dataclass(frozen=True, slots=True)
class Gone:
    """Why a member cannot be worked with, and since when, on the loop's clock."""

    why: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Departed:
    """Who is not in the new view any more, and why. `left`: of its own will."""

    peer: PeerId
    why: str
    left: bool


@dataclass(frozen=True, slots=True)
class Decree:
    """What a change decides: the next view, and the version that all go on from, which the `donors` have. `given`: no
    round of this run has led to that version, a checkpoint has."""

    view: View
    base: Version
    donors: tuple[PeerId, ...]
    departed: tuple[Departed, ...]
    given: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A view holds, whoever has heard of it, for a simulation's checkers."""

    generation: int
    members: tuple[PeerId, ...]
