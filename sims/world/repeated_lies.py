"""Lies that a hostile member repeats: it says what is not so to the others, again and again, and otherwise behaves as
they do. `Lie` names the lies. The most senior member tells none by which it would propose, because it may lead
anyway."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...protocols.members.echoes import RANKS
from ...protocols.members.membership import Membership
from ...protocols.members.messages import (
    MEMBERS,
    Adopt,
    Install,
    Introduce,
    Promise,
    Propose,
    Stale,
    Suspicion,
)
from ...protocols.members.view import Decree, Version
from ...protocols.transport import PeerId
from ..scenarios.lies import Lie
from .event_log import Log
from .hostile import say
from .overheard import Foreign
from .simulated_peer import Life
from .two_faced import present

EVERY_S = (0.05, 0.15, 0.5)
"""A hostile member repeats its lie in one of these numbers of virtual seconds."""
REPEATED = "a member repeated a lie"
"""The place that is reached when a lie is told for the fifth time."""
_HIGH = 1 << 12
"""The ballots of a liar are as high as those of an honest member after so many tries, and rise, so that they are
heeded."""
_NOBODYS = Version(1 << 40, 77)
"""A version of the state that nobody holds."""
_LIFE = 4711
"""A life that no process has."""


@dataclass(frozen=True, slots=True)
class _Stand:
    """The situation in which a member lies. `now`: its view, and the version from which that began; `held`: the version
    that it holds; `ballot`: the ballot for its next proposal."""

    liar: PeerId
    now: Decree
    held: Version
    ballot: int

    @property
    def generation(self) -> int:
        return self.now.view.generation

    @property
    def others(self) -> list[PeerId]:
        """The other members, the most senior first."""
        return [peer for peer in self.now.view.by_seniority if peer != self.liar]

    def next_view(self, base: Version, capacity: int | None = None) -> Decree:
        """A decree by which all members go on from `base`. `capacity`: what it says of each member, so that two such
        decrees are not the same; None: what is so."""
        view = replace(self.now.view, generation=self.generation + 1)
        if capacity is not None:
            view = replace(view, members=tuple(one.of_capacity(capacity) for one in view.members))
        return Decree(view, base, (self.liar,), ())


Telling = Iterator[tuple[PeerId, object]]
"""Messages, each with its receiver."""


def _rest_anew(stand: _Stand, *, votes: bool = False) -> Telling:
    for to in stand.others:
        for member in stand.now.view.members:
            if member.id not in (to, stand.liar):
                yield to, Introduce(replace(member, life=_LIFE), Version(0, 0), stand.generation, votes)


def _rest_votes(stand: _Stand) -> Telling:
    yield from _rest_anew(stand, votes=True)


def _one_anew(stand: _Stand) -> Telling:
    junior = stand.others[-1]
    member = next(one for one in stand.now.view.members if one.id == junior)
    for to in stand.others[:-1]:
        yield to, Introduce(replace(member, life=_LIFE), Version(0, 0), stand.generation)


def _former_life(stand: _Stand) -> Telling:
    for to in stand.others:
        yield to, Promise(stand.generation, 0, 0, stand.held, stand.held, True, 0, None, True)


def _adopt(stand: _Stand, base: Version) -> Telling:
    for to in stand.others:
        yield to, Adopt(stand.generation, stand.ballot, stand.next_view(base))


def _propose(stand: _Stand, to: Sequence[PeerId]) -> Telling:
    for peer in to:
        yield peer, Propose(stand.generation, stand.ballot)


def _false_view(stand: _Stand) -> Telling:
    yield from _propose(stand, stand.others)
    yield from _adopt(stand, _NOBODYS)
    for to in stand.others:
        yield to, Install(stand.next_view(_NOBODYS))


def _swapped(stand: _Stand) -> Telling:
    few = len(stand.others) // 2
    halves = stand.others[:few], stand.others[few:]
    decrees = stand.next_view(stand.held, 1000), stand.next_view(stand.held, 1001)
    for half, decree in zip(halves, decrees, strict=True):
        for to in half:
            yield to, Adopt(stand.generation, stand.ballot, decree)
    for half, decree in zip(halves, reversed(decrees), strict=True):
        for to in half:
            yield to, Install(decree)


def _accusation(stand: _Stand) -> Telling:
    coordinator, *rest = stand.others
    for to in rest:
        yield to, Suspicion(stand.generation, coordinator, "it is silent")


def _left_out(stand: _Stand) -> Telling:
    for to in stand.others:
        members = tuple(peer for peer in stand.now.view.ids if peer != to)
        yield to, Stale(stand.generation + 1, stand.liar, members)


def _foreign(stand: _Stand) -> Telling:
    for to in stand.others:
        yield to, Foreign(1)


_PROPOSALS: dict[Lie, Callable[[_Stand], Telling]] = {
    Lie.UNKNOWN_BASE: lambda stand: _adopt(stand, _NOBODYS),
    Lie.PAST_BASE: lambda stand: _adopt(stand, stand.now.base),
    Lie.NEXT_VIEW: lambda stand: _adopt(stand, stand.held),
    Lie.FALSE_VIEW: _false_view,
    Lie.TO_ONE: lambda stand: _propose(stand, stand.others[-1:]),
    Lie.TO_OTHERS: lambda stand: _propose(stand, stand.others[1:]),
    Lie.SWAPPED: _swapped,
}
_TELLINGS: dict[Lie, Callable[[_Stand], Telling]] = {
    Lie.REST_ANEW: _rest_anew,
    Lie.REST_VOTES: _rest_votes,
    Lie.ONE_ANEW: _one_anew,
    Lie.FORMER_LIFE: _former_life,
    Lie.ACCUSATION: _accusation,
    Lie.LEFT_OUT: _left_out,
    Lie.FOREIGN: _foreign,
    **_PROPOSALS,
}


def telling(lie: Lie, life: Life, number: int) -> list[tuple[PeerId, object]]:
    """The messages by which the member `life` tells this lie for the time `number`, each with its receiver. There are
    none while it is in no view, in one of fewer than three members, or while it is the most senior member and would
    propose."""
    now, membership = present(life), life.peer.membership
    if now is None or len(now.view.ids) < 3 or (lie in _PROPOSALS and now.view.by_seniority[0] == life.id):
        return []
    assert isinstance(membership, Membership), "it is in a view that all members agree on"
    held = membership.standing.state
    return list(_TELLINGS[lie](_Stand(life.id, now, held, (_HIGH + number) * RANKS + now.view.ids.index(life.id))))


class RepeatedLie:
    """Members that tell a lie every so often, until it is stopped. `seed`: for the time from one to the next."""

    def __init__(self, lie: Lie, seed: str, members: Sequence[Life], log: Log) -> None:
        self._lie, self._members, self._log = lie, members, log
        self._every_s = random.Random(f"{seed} {lie}").choice(EVERY_S)
        self._said = 0
        self._task = asyncio.create_task(self._speak(), name="repeated lie")

    async def _speak(self) -> None:
        while True:
            for life in self._members:
                if life.running:
                    life.machine.context.run(self._tell, life)
            await asyncio.sleep(self._every_s)

    def _tell(self, life: Life) -> None:
        messages = telling(self._lie, life, self._said)
        for to, message in messages:
            say(life.endpoint, to, MEMBERS, message, b"")
        self._said += bool(messages)
        if messages and self._said == 5:
            self._log.reached[REPEATED] += 1
            self._log.reached[f"lie: {self._lie}"] += 1

    def stop(self) -> None:
        """Say no more. If that had ended by an error before, raises that error and does nothing else."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()
        self._task.cancel()
