"""Who is a member: views, numbered by generation, and the messages that change them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .transport import PeerId
from .wire import message


@dataclass(frozen=True, slots=True)
class Member:
    """A peer in a view. `data_part`: which part of the data is its own; it also orders the ranks. `since`: the
    generation in which it joined; the most senior member that is not suspected coordinates."""

    id: PeerId
    name: str
    address: str
    data_part: int
    since: int


@dataclass(frozen=True, slots=True)
class View:
    """A generation and its members in rank order. `started` once enough have gathered for the first round."""

    generation: int
    members: tuple[Member, ...]
    started: bool

    @property
    def ids(self) -> tuple[PeerId, ...]:
        return tuple(member.id for member in self.members)

    def member(self, peer: PeerId) -> Member | None:
        return next((member for member in self.members if member.id == peer), None)

    def name(self, peer: PeerId) -> str:
        member = self.member(peer)
        return peer[:12] if member is None else member.name

    def by_seniority(self) -> list[PeerId]:
        return [member.id for member in sorted(self.members, key=lambda m: (m.since, m.data_part, m.id))]

    def majority(self) -> int:
        return len(self.members) // 2 + 1


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


@message()
@dataclass(frozen=True, slots=True)
class Join:
    """A newcomer, who has the state of `round`, asks any member to be let in; not `ready`, it only asks whether it
    would be, and where the others stand. `layout`: its model's digest; `model`: the same in words."""

    ask: int
    run: str
    member: Member
    layout: str
    model: str
    round: int
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
    ask: int
    why: str


@message()
@dataclass(frozen=True, slots=True)
class Introduce:
    """The contact tells the coordinator of a newcomer, who has the state of `round`."""

    member: Member
    round: int


@message()
@dataclass(frozen=True, slots=True)
class Propose:
    """The coordinator asks: promise to commit nothing any more in generations before this one."""

    generation: int


@message()
@dataclass(frozen=True, slots=True)
class Promise:
    """The answer, with the newest view I know, the last round I have the result of, and whether I promise at all."""

    generation: int
    given: bool
    promised: int
    view: View
    round: int


@message()
@dataclass(frozen=True, slots=True)
class Install:
    """The new view. All go on from `round`; who has it not gets it from one of `donors`."""

    view: View
    round: int
    donors: tuple[PeerId, ...]


@message()
@dataclass(frozen=True, slots=True)
class Suspicion:
    """Told to the coordinator: I have lost a member, or it has left of its own will."""

    generation: int
    peer: PeerId
    why: str
    left: bool


@message()
@dataclass(frozen=True, slots=True)
class Leave:
    """I leave of my own will; the round goes on without me."""

    generation: int
    why: str


@message()
@dataclass(frozen=True, slots=True)
class Stale:
    """You speak from a generation that is over: join again."""

    generation: int


@message()
@dataclass(frozen=True, slots=True)
class Finished:
    """I have committed the last round of the run and stay only until all others have."""

    generation: int
    round: int
