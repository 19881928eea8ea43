"""Hierarchical local SGD: between two rounds of all members, the peers of one site average their models among
themselves.

Source: Lin et al., "Don't use large mini-batches, use local SGD" (ICLR 2020, arXiv 1808.07217), section 5 and appendix
D: after every H local steps the workers of a block average, after H H^b of them all do.

| paper | here |
|---|---|
| H | local steps from one turn to the next, `Settings.site_period` |
| H^b | turns of a round, the last of which is the round: the period over that |
| block | the members of the view at one `Attributes.site` |
| x_i | `Contribution.vector`, weighted by the samples of the round so far |

A turn is a point in a round at which the peers of a site average. The agreed state is the one after a round, as without
sites: a peer that joins, comes back or resumes begins from it. A site's mean is an intermediate model of its peers, so
no other site needs to know of it.

A turn within one generation has three steps. Each peer tells its site which turn it has reached (`Stand`), and waits
until all of the site have reached that turn. The peers at this turn tell each other who sums (`Among`), and sum their
models. Each then tells the others that it holds the mean (`Hold`), and adopts the mean when all of them hold it.
Cost: the schedule's within the site, for n + 1 elements, and 3(p-1) small messages of each of p peers, 2 trips.
On failure: the view changes, and all tell again which turn they have reached. A mean that any peer has adopted was held
by all. So if all remaining peers of the last attempt hold its mean, they adopt it; otherwise no peer has adopted it,
and the peers at this turn sum anew. A peer that reaches a turn after its site has moved on skips it and keeps its own
model. This holds even if the peer has that turn's mean, when the others have adopted a later one: it can no longer
learn whether they adopted this one. If two peers of a site cannot reach each other, one of them goes on by itself. A
peer that began to sum with another one and can no longer reach it keeps its own model: the other may have adopted the
mean. If a peer tells its mates different turns, they do not agree on who sums. The attempt is over as soon as one of
them hears of it: a peer that holds the mean that a mate has adopted adopts it too, any other keeps its own model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor

from ...aggregation.mean import BadSum, combine, contribute
from ..channel import Channel, Envelope
from ..collectives.reducer import Reducer
from ..members.membership import Membership
from ..offload import off_loop
from ..testpoints import sometimes, witness
from ..transfer.chunks import AttemptId
from ..transport import PeerId
from ..wire.frames import message
from .commit import BAD
from .inquest import Inquest
from .rounds import LOCAL_SGD, Contribution, SiteAttemptId, SiteCommitted, SiteContributed
from .state import fingerprint

PAST = 1 << 40
"""The turn in the `Stand` of a peer that has reached the round of all members, beyond all turns of its site."""
_KEPT = 4
"""How many of each peer's latest messages are kept: no peer is more turns ahead."""

Turn = tuple[int, int]
"""A point in a round at which a site averages: (round, turn), both counted from 1."""
Told = TypeVar("Told", bound="Stand | Among | Hold")


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Stand:
    """Sent to the peers of the site: the sender has reached this turn of the round. `tried`: the generation in which it
    last began to sum at this turn; 0: none. `held`: fingerprint of the mean that it holds from that attempt; 0: none.
    `last`: the turn whose mean it adopted last in this round; 0: none; `taken`: that mean's fingerprint."""

    generation: int
    round: int
    turn: int
    tried: int
    held: int
    last: int
    taken: int


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Hold:
    """Sent to the peers of the same attempt: the sender holds the mean with this fingerprint, above 0; BAD: its sum was
    bad, and it holds none."""

    generation: int
    round: int
    turn: int
    fingerprint: int


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Among:
    """Sent to the peers of an attempt as it begins. `peers`: a digest of the ids of the peers among which the sender
    sums."""

    generation: int
    round: int
    turn: int
    peers: int


@dataclass(slots=True)
class _Mine:
    """This peer's state in its latest turn. `tried`: the generation of its last attempt to sum, with `members`. `mean`:
    the mean that it holds from that attempt; `mark`: the mean's fingerprint."""

    turn: Turn = (0, 0)
    tried: int = 0
    members: tuple[PeerId, ...] = ()
    mean: Tensor | None = None
    mark: int = 0


class SiteRounds:
    """Averages one peer's model with those of its site, between two rounds of all members. An attempt is cancelled when
    a new generation begins."""

    def __init__(self, channel: Channel, membership: Membership, reducer: Reducer, inquest: Inquest) -> None:
        self._channel, self._membership, self._reducer, self._inquest = channel, membership, reducer, inquest
        self._mine = _Mine()
        self._last: tuple[Turn, int] = ((0, 0), 0)
        """The turn whose mean this peer adopted last, and that mean's fingerprint."""
        self._stands: dict[PeerId, list[Stand]] = {}
        self._among: dict[PeerId, list[Among]] = {}
        self._holds: dict[PeerId, list[Hold]] = {}
        channel.on(Stand, lambda envelope: self._hear(envelope, self._stands))
        channel.on(Among, lambda envelope: self._hear(envelope, self._among))
        channel.on(Hold, lambda envelope: self._hear(envelope, self._holds))

    def pass_by(self, attempt: AttemptId) -> None:
        """Tell the peers of the site that this peer has reached the round itself, so that they do not wait for it.
        Nothing if it is alone there."""
        if len(mates := self._mates()) > 1:
            self._tell(mates, self._stand(attempt, PAST, _Mine()))

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId, turn: int) -> Tensor:
        """The model [n] from which this peer continues after `turn`: the mean of its site's peers at that turn, or its
        own model if they have passed the turn, or no mean was adopted. `anchor` [n]: the model that all had before the
        round. Raises PeerLost, and ValueError when the contribution is not finite."""
        if self._mine.turn != (attempt[1], turn):
            self._mine = _Mine((attempt[1], turn))
        if {*self._mine.members} & {*self._membership.view.ids} - {*self._mates()}:
            sometimes("a peer cannot know whether a mate took what both summed")
            return contribution.vector
        there, passed = await self._gathered(attempt, turn)
        mine, own = self._mine, contribution.vector
        marks = {stand.taken for stand in passed.values() if (stand.round, stand.last) == (attempt[1], turn)}
        if marks:
            return self._take(mine, mine.mean) if mine.mean is not None and mine.mark in marks else own
        if not passed.keys().isdisjoint(mine.members):
            sometimes("a mate went on without the mean that it holds")
            return own
        newest = max(stand.tried for stand in there.values())
        if newest and any((stand.round, stand.last) > (attempt[1], turn) for stand in passed.values()):
            sometimes("a site does not tell any more what it took at a turn")
            return own
        held = {stand.held for stand in there.values() if stand.tried == newest}
        if newest and 0 not in held and len(held) == 1:
            sometimes("a site took what its last attempt had come to")
            return self._take(mine, mine.mean) if mine.mean is not None and mine.tried == newest else own
        if len(there) == 1:
            return own
        return await self._summed(contribution, anchor, (*attempt, turn), tuple(there))

    def _mates(self) -> tuple[PeerId, ...]:
        """The peers of this peer's site that all reach each other, this one included, in rank order."""
        me, view, mates = self._membership.me, self._membership.view, list[PeerId]()
        for one in view.members if me.attributes.site else ():
            if one.attributes.site == me.attributes.site and not any(view.are_apart(one.id, mate) for mate in mates):
                mates.append(one.id)
        return tuple(mates) if me.id in mates else (me.id,)

    def _stand(self, attempt: AttemptId, turn: int, mine: _Mine) -> Stand:
        (round_, last), taken = self._last
        return Stand(*attempt, turn, mine.tried, mine.mark, *((last, taken) if round_ == attempt[1] else (0, 0)))

    async def _gathered(self, attempt: AttemptId, turn: int) -> tuple[dict[PeerId, Stand], dict[PeerId, Stand]]:
        """The `Stand` of each peer of the site that is at `turn`, in rank order; and the `Stand` of each peer that is
        further on."""
        mates, me, own = self._mates(), self._channel.endpoint.id, self._stand(attempt, turn, self._mine)
        self._tell(mates, own)
        stands = {me: own}

        def all_stand() -> bool:
            for peer in mates:
                if peer not in stands and (found := self._first(peer, own)) is not None:
                    stands[peer] = found
            return len(stands) == len(mates)

        with self._reducer.inbox.meter.stalled_sum(lambda: set(mates) - stands.keys()):
            await self._membership.until(all_stand)
        there = {peer: stands[peer] for peer in mates if _place(stands[peer]) == _place(own)}
        return there, {peer: stand for peer, stand in stands.items() if peer not in there}

    def _first(self, peer: PeerId, own: Stand) -> Stand | None:
        """The `Stand` of `peer` in this generation for the first turn that is not before that of `own`; None: not heard
        yet."""
        told = [one for one in self._stands.get(peer, ()) if one.generation == own.generation]
        return min((one for one in told if _place(one) >= _place(own)), key=_place, default=None)

    async def _summed(
        self, contribution: Contribution, anchor: Tensor, attempt: SiteAttemptId, members: tuple[PeerId, ...]
    ) -> Tensor:
        generation, round_, turn = attempt
        self._mine = mine = _Mine((round_, turn), tried=generation, members=members)
        vector, weight, nbytes = contribution.vector, contribution.weight, contribution.vector.nbytes
        witness(SiteContributed(attempt, vector, weight, members))

        def brought() -> Tensor:
            message = contribute(vector, weight)
            contribution.check(message)
            return message

        def found() -> tuple[Tensor | None, int]:
            try:
                mean = combine(total)
                self._reducer.bound.check(mean, anchor, len(members))
            except BadSum:
                return None, 0
            return mean.vector, fingerprint(total) or 1

        message, marks = await off_loop(nbytes, brought), set[int]()
        among = Among(*attempt, self._reducer.group.among(members).digest)
        self._tell(members, among)
        async with self._membership.only_while(lambda: not self._broken_up(among, members)):
            total = await self._reducer.sum_among(members, message, (generation, round_), turn)
            mine.mean, mine.mark = await off_loop(nbytes, found)
            marks = await self._all_hold(Hold(*attempt, mine.mark or BAD), members)
        if broken_up := not marks:  # a member that has taken the mean was told that all hold it
            gone_on = self._gone_on(attempt, members)
            marks = {stand.taken for stand in gone_on if (stand.round, stand.last) == mine.turn}
        if mine.mean is not None and marks == {mine.mark}:
            return self._take(mine, mine.mean)
        self._mine = _Mine((round_, turn))
        if broken_up:
            sometimes("the peers of a site did not agree on who sums")
        elif marks == {BAD}:
            await self._inquest.at_site(contribution, anchor, (generation, round_), members, turn)
            sometimes("a site's sum was bad and none was taken")
        else:
            sometimes("a site's means differed and none was taken")
        return vector

    def _broken_up(self, mine: Among, members: tuple[PeerId, ...]) -> bool:
        """Whether a member has gone on to a later turn, or sums among other peers. An honest site ends its attempts
        together, so a peer has told its mates different turns."""
        if self._gone_on((mine.generation, mine.round, mine.turn), members):
            return True
        others = (one for peer in members for one in self._among.get(peer, ()))
        return not self._mine.mark and any(replace(one, peers=mine.peers) == mine != one for one in others)

    def _gone_on(self, attempt: SiteAttemptId, members: tuple[PeerId, ...]) -> list[Stand]:
        """The messages of those members of this attempt that are at a later turn."""
        generation, *turn = attempt
        told = (stand for peer in members for stand in self._stands.get(peer, ()))
        return [stand for stand in told if stand.generation == generation and _place(stand) > tuple(turn)]

    async def _all_hold(self, hold: Hold, members: tuple[PeerId, ...]) -> set[int]:
        """The fingerprints of the means that the members hold, once all members have told theirs."""
        self._tell(members, hold)
        marks = {self._channel.endpoint.id: hold.fingerprint}

        def told() -> bool:
            for peer in members:
                for one in self._holds.get(peer, ()):
                    if replace(one, fingerprint=hold.fingerprint) == hold:
                        marks[peer] = one.fingerprint
            return len(marks) == len(members)

        await self._membership.until(told)
        return set(marks.values())

    def _take(self, mine: _Mine, mean: Tensor) -> Tensor:
        self._last = (mine.turn, mine.mark)
        witness(SiteCommitted((mine.tried, *mine.turn), mean))
        return mean

    def _tell(self, peers: tuple[PeerId, ...], message: Stand | Among | Hold) -> None:
        for peer in peers:
            if peer != self._channel.endpoint.id:
                self._channel.post(peer, message)

    def _hear(self, envelope: Envelope, told: dict[PeerId, list[Told]]) -> None:
        """Keep a message, also one of a later generation: its sender may have gone on to that generation before this
        peer."""
        now, heard = self._membership.view.generation, envelope.message
        if heard.generation > now or self._membership.current(envelope, heard.generation):
            kept = [one for one in told.get(envelope.sender, ()) if now <= one.generation <= heard.generation]
            told[envelope.sender] = [*kept, heard][-_KEPT:]
            self._membership.notify()


def _place(stand: Stand) -> Turn:
    return stand.round, stand.turn
