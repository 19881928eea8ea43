"""Who is a member: views, numbered by generation, and the messages that change them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ...aggregation.shares import by_bandwidth, coarse
from ..transport import PeerId
from ..wire import message

WHY_MAX = 200
VIEW_BYTES_MAX = 32 * 1024
"""Of all members' names and addresses together: a view has to fit in a message's header, with room to spare."""
_MEMBER_BYTES = 48


@dataclass(frozen=True, slots=True)
class Member:
    """A peer in a view. `data_part`: which part of the data is its own; it also orders the ranks. `since`: the
    generation in which it joined; the most senior member that is not suspected coordinates. `machine`: what it has in
    common with those on its machine, with whom it can share memory; "" if it cannot. `site`: those with whom it
    averages between rounds have the same; "": nobody has. `bandwidth_Bps`: what its connection carries each way at
    once, as it was known when the view was decided; 0: it was not."""

    id: PeerId
    name: str
    address: str
    data_part: int
    since: int
    machine: str = ""
    site: str = ""
    bandwidth_Bps: int = 0

    @property
    def nbytes(self) -> int:
        """About as many bytes as it takes in a message."""
        return _MEMBER_BYTES + sum(
            len(text.encode()) for text in (self.id, self.name, self.address, self.machine, self.site)
        )


@dataclass(frozen=True)
class View:
    """A generation and its members in rank order. `started` once enough have gathered for the first round."""

    generation: int
    members: tuple[Member, ...]
    started: bool

    @cached_property
    def ids(self) -> tuple[PeerId, ...]:
        return tuple(member.id for member in self.members)

    @cached_property
    def one_machine(self) -> bool:
        """Whether all say that they are on the same machine, and can share memory there."""
        return len({member.machine for member in self.members}) == 1 and self.members[0].machine != ""

    @cached_property
    def bandwidths_Bps(self) -> tuple[float, ...] | None:
        """Of each member, as it counts; None: nothing is known of any."""
        known = [member.bandwidth_Bps for member in self.members]
        return coarse(known) if any(known) else None

    @cached_property
    def shares(self) -> tuple[float, ...] | None:
        """Which share of a vector each member sums up for the others in a sharded allreduce; None: as much as any."""
        return None if self.bandwidths_Bps is None else by_bandwidth(self.bandwidths_Bps)

    def member(self, peer: PeerId) -> Member | None:
        return next((member for member in self.members if member.id == peer), None)

    def name(self, peer: PeerId) -> str:
        member = self.member(peer)
        return peer[:12] if member is None else member.name

    @cached_property
    def by_seniority(self) -> list[PeerId]:
        return [member.id for member in sorted(self.members, key=lambda m: (m.since, m.data_part, m.id))]

    def majority(self) -> int:
        return len(self.members) // 2 + 1

    def holds(self, member: Member) -> bool:
        """Whether `member` is in it and did not join anew since."""
        known = self.member(member.id)
        return known is not None and known.since == member.since

    def has_room(self, member: Member) -> bool:
        return member.nbytes + sum(known.nbytes for known in self.members) <= VIEW_BYTES_MAX


def ranked(members: list[Member]) -> tuple[Member, ...]:
    """Members in rank order: the same on all peers, and the same again in a run that is repeated."""
    return tuple(sorted(members, key=lambda m: (m.data_part, m.id)))


def with_data_parts(newcomers: list[Member], staying: list[Member], parts: int, generation: int) -> list[Member]:
    """Newcomers with parts of the data of their own: the one they ask for, or the first that nobody has, or, when
    all are taken, one that they share with another."""
    taken = {member.data_part for member in staying}
    placed = []
    for index, member in enumerate(sorted(newcomers, key=lambda m: (m.data_part, m.id))):
        free = [part for part in range(parts) if part not in taken]
        part = member.data_part
        if part in taken or part >= parts:
            part = free[0] if free else (len(staying) + index) % parts
        taken.add(part)
        placed.append(replace(member, data_part=part, since=generation))
    return placed


def in_words(why: str) -> str:
    """`why` as a message may carry it: one printable line of a bounded length."""
    return "".join(letter if letter.isprintable() else " " for letter in why)[:WHY_MAX]


@dataclass(frozen=True, slots=True)
class Departed:
    """Who is not in the new view any more, and why. `left`: of its own will."""

    peer: PeerId
    why: str
    left: bool


@dataclass(frozen=True, slots=True)
class Decree:
    """What a change decides: the next view, and that all go on from `round`, whose result the `donors` have."""

    view: View
    round: int
    donors: tuple[PeerId, ...]
    departed: tuple[Departed, ...]


@message()
@dataclass(frozen=True, slots=True)
class Join:
    """A newcomer asks any member to be let in; not `ready`, it only asks whether it would be, and where the others
    stand. It has the state of `round` with that `fingerprint`. `layout`: its model's digest; `model`: it in words."""

    ask: int
    run: str
    member: Member
    layout: str
    model: str
    round: int
    fingerprint: int
    ready: bool


@message()
@dataclass(frozen=True, slots=True)
class Welcome:
    """The contact's view and the round and fingerprint of its state."""

    ask: int
    view: View
    round: int
    fingerprint: int


@message()
@dataclass(frozen=True, slots=True)
class Refused:
    """`final`: asking another member is of no use."""

    ask: int
    why: str
    final: bool


@message()
@dataclass(frozen=True, slots=True)
class Later:
    """Told to a newcomer who has held up the others: we do not let you in for so many seconds yet."""

    seconds: float
    why: str


@message()
@dataclass(frozen=True, slots=True)
class Introduce:
    """The contact, who is in `generation`, tells the coordinator of a newcomer, who has the state of `round` with that
    `fingerprint`."""

    member: Member
    round: int
    fingerprint: int
    generation: int


@message()
@dataclass(frozen=True, slots=True)
class Propose:
    """I would lead the change of the view of `generation`: promise to follow no lower `ballot`, and to commit no result
    any more in this generation."""

    generation: int
    ballot: int


@message()
@dataclass(frozen=True, slots=True)
class Promise:
    """The answer to Propose. `promised`: the highest ballot I promised to follow, a higher one when I follow another.
    I hold the result of `round`, and I have adopted `decree` under the ballot `adopted` (0: none)."""

    generation: int
    ballot: int
    promised: int
    round: int
    fingerprint: int
    adopted: int
    decree: Decree | None


@message()
@dataclass(frozen=True, slots=True)
class Adopt:
    """Enough have promised: adopt this decree."""

    generation: int
    ballot: int
    decree: Decree


@message()
@dataclass(frozen=True, slots=True)
class Adopted:
    """The answer to Adopt: I have adopted the decree, unless I `promised` a higher ballot meanwhile."""

    generation: int
    ballot: int
    promised: int


@message()
@dataclass(frozen=True, slots=True)
class Install:
    """Enough have adopted the decree: it holds."""

    decree: Decree


@message()
@dataclass(frozen=True, slots=True)
class Behind:
    """You speak of a later generation than I know of."""

    generation: int


@message()
@dataclass(frozen=True, slots=True)
class Suspicion:
    """Told to the coordinator: I have lost a member."""

    generation: int
    peer: PeerId
    why: str


@message()
@dataclass(frozen=True, slots=True)
class Leave:
    """I would leave of my own will; the round goes on without me."""

    why: str


@message()
@dataclass(frozen=True, slots=True)
class Stale:
    """You speak from a generation that is over, and you are none of the `members` of the present one: join again, by
    `contact`. Who hears it tells those on its side of a split, who may be members all the same."""

    generation: int
    contact: PeerId
    members: tuple[PeerId, ...]


@message()
@dataclass(frozen=True, slots=True)
class Anew:
    """I begin anew: this link ends here, and who waits to be let in through me asks another."""


@message()
@dataclass(frozen=True, slots=True)
class Finished:
    """I have committed the last round of the run and stay only until all others have."""
