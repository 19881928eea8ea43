"""A peer's neighbourhood: takes the vectors of its neighbours in each round, as the graph tells, and mixes them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor

from ..collectives.bound import Bound, WrongNumbers
from ..link.link import PeerLost
from ..members.neighbours import STILL_THERE
from ..members.port import Members
from ..members.view import Member
from ..stalls.stalls import Stalls
from ..testpoints import sometimes
from ..transport import PeerId
from .exchange import NeighbourExchange
from .graph import Graph
from .lent import Shown
from .messages import NEWEST, Form, Published
from .mixing import Mix, Overwritten, Own, Summands, check, mix, own
from .shares import Shares, split
from .taken import Taken, donors

_LOOKS, _LOOKS_A_YIELD, _NAPS, _NAP_S = 400, 20, 25, 0.001
"""How often to look at neighbours' boards without a pause, how often to yield, and how many pauses of what length then
follow, before these neighbours are asked by message."""
_LARGE_BYTES, _LOOKS_IF_LARGE = 4 << 20, 40
"""A neighbour takes a while to write so large a vector."""


class Neighbourhood:
    """Takes the vectors of one peer's neighbours in the `graph` in each round, and mixes them with its own. `bound`
    limits the norms of their models. `shares`: the account of shares of split vectors; None: they are given whole."""

    def __init__(
        self,
        exchange: NeighbourExchange,
        members: Members,
        stalls: Stalls,
        graph: Graph,
        bound: Bound,
        shares: Shares | None = None,
    ) -> None:
        self._exchange, self._members, self._stalls, self._shares = exchange, members, stalls, shares
        self._graph, self._bound = graph, bound
        self._links = 0
        """The number of takers of this peer's last vector."""
        self._received = Counter[PeerId]()
        self.on_round: list[Callable[[], None]] = []
        """Called, without arguments, each time that `take` has taken the vectors of a round."""
        self._pulls: dict[PeerId, asyncio.Task[Published | Shown]] = {}
        self._looks = _LOOKS if exchange.giving.newest.vector.nbytes < _LARGE_BYTES else _LOOKS_IF_LARGE
        self._awaited: set[PeerId] = set()
        """The neighbours whose vectors are looked for."""
        exchange.showing.is_near = self._is_near
        members.neighbours.on_left.append(self._left)

    @property
    def bytes_shared(self) -> int:
        """Bytes of vectors that this peer has written to shared memory for its neighbours, and read from theirs."""
        return self._exchange.showing.bytes_shared

    async def publish(self, one: Published) -> Own:
        """Publish `one` for this peer's takers in its round. Returns the vector that this peer itself mixes, with its
        norm: the one that the takers get, or, where vectors are split, the rest beside their shares. Raises ValueError
        for a vector that is not finite."""
        of = self._graph.takers(one.round)
        one = replace(one, told=one.told._replace(links=len(of)))
        self._links = len(of)
        if self._shares is None:
            return await self._exchange.publish(one, of, lambda peer: self._graph.is_taken_by_all(peer, one.round))
        of = [] if one.last else self._members.neighbours.there(of)
        share, rest = split(one.vector, len(of))
        await self._exchange.publish(replace(one, vector=share), of)
        return await own(rest)

    async def take(self, round: int, mixed: int) -> Taken:
        """Take the vectors of this peer's givers in the graph of the round `mixed`: those of `round`, or newer ones;
        `NEWEST`: the newest, of which only the numbers come where vectors are sent as differences. Returns when each
        has given its vector or is lost; one that was lost before is not asked. The vectors are not checked yet (`mix`,
        `checked`)."""
        began_s, of = self._now(), self._graph.givers(mixed)
        found, came_s = dict[PeerId, Published | Shown](), dict[PeerId, float]()
        self._exchange.only(of)
        self._exchange.showing.meet(of)
        self._awaited = set(self._members.neighbours.there(of))
        if self._exchange.by_rounds and round != NEWEST:
            await self._look(round, found, came_s)
        if self._awaited:
            await self._pull(round, found, came_s)
        if round != NEWEST and len(of) > 1:  # one alone may be followed by a newcomer that began with the same model
            self._exchange.only(of)
        for done in self.on_round:
            done()
        for peer, one in found.items():
            self._received[peer] += one.carried_bytes
        if len(found) < len(of):
            sometimes("a neighbour gave nothing")
        last = max(came_s, key=lambda peer: came_s[peer], default=None)
        until_s = self._now() if last is None or len(found) < len(of) else came_s[last]
        splits = self._shares is not None and round != NEWEST
        nothing = Taken({}, of, 1.0, max(0.0, until_s - began_s), last, splits)
        return self._among(nothing, {peer: found[peer] for peer in sorted(found)})

    async def mix(self, mine: Own, taken: Taken, anchor: Tensor) -> tuple[Taken, Mix]:
        """Mix this peer's own vector with those that were `taken`; one overwritten on its board meanwhile is asked for
        again. Returns what was taken, without vectors that were wrong (their peers count as lost) or could not be had
        again, and the mix. `anchor` [n]: this peer's own model, beside which the others must not be too large."""
        while True:
            vectors = {peer: one.vector for peer, one in taken.vectors.items()}
            try:
                mixed = await mix(Summands(mine, taken.own, vectors, taken.weights), anchor, self._bound)
                break
            except WrongNumbers as wrong:
                self._is_wrong(wrong)
                taken = self._without(taken, wrong.peer)
            except Overwritten as overwritten:
                taken = await self._anew(taken, overwritten.peer)
        for peer, one in taken.vectors.items():
            if isinstance(one, Shown):
                self._exchange.showing.took(peer, one.round)
        return taken, mixed

    async def checked(self, taken: Taken, anchor: Tensor) -> Mapping[PeerId, Published]:
        """The vectors that were `taken` and are right, each checked on its own, without mixing them. A peer whose
        vector is wrong counts as lost. Where vectors are sent as differences: one vector at most, the newest that this
        peer can get from the best of `donors`. Its `round` may be lowered: to at most the one that more than half of
        the neighbours have reached. `anchor`: as for `mix`."""
        if self._exchange.estimates is None:
            good = {peer: await self._checked(peer, one, anchor) for peer, one in taken.vectors.items()}
            return {peer: one for peer, one in good.items() if one is not None}
        for peer in donors(taken, self._members):
            if (one := await self._checked(peer, taken.vectors[peer], anchor)) is not None:
                one = await self._newest(peer, one, anchor)
                now = await self.take(NEWEST, one.round)  # it may tell of more rounds than there were
                return {peer: replace(one, round=min(one.round, max(now.reached, taken.reached)))}
        return {}

    async def _checked(self, peer: PeerId, one: Published | Shown, anchor: Tensor) -> Published | None:
        """A vector that was taken, asked for now if only its numbers came. None: it is wrong, and its peer counts as
        lost, or it does not come."""
        try:
            if isinstance(one, Shown):
                one = await self._exchange.take(peer, one.round)
            elif not one.vector.numel():
                one = await self._exchange.take(peer, NEWEST, form=Form.WHOLE)
                self._received[peer] += one.carried_bytes
            await check(peer, one.vector, anchor, self._bound)
            return one
        except WrongNumbers as wrong:
            self._is_wrong(wrong)
        except PeerLost:
            pass  # the membership hears of it, too
        return None

    async def _newest(self, peer: PeerId, one: Published, anchor: Tensor) -> Published:
        """The newest vector of `peer`, if a difference leads to it from its vector `one`, which took long to come: this
        peer's other neighbours are more likely to have the newest one. Else `one`."""
        try:
            newest = await self._exchange.take(peer, NEWEST, spares=True)
            await check(peer, newest.vector, anchor, self._bound)
            return newest
        except (PeerLost, WrongNumbers):
            return one

    def ask_ahead(self, round: int) -> None:
        """Ask the neighbours now for the vectors that `take` will take for `round`. Does nothing where vectors are not
        taken by their rounds: the questions would take shares, or average."""
        if self._exchange.by_rounds:
            self._exchange.ask_ahead(self._members.neighbours.there(self._graph.givers(round)), round)

    def completed(self, mixed: Tensor) -> Tensor:
        """This peer's `mixed` vector [n] with all that belongs to it besides: since the last call, the shares that came
        back because no peer took them. If there are none it is `mixed` itself."""
        return sum([] if self._shares is None else self._shares.back(), start=mixed)

    def received(self) -> Mapping[PeerId, int]:
        """By neighbour, the bytes of vectors that this peer has taken from it since the last call."""
        found = dict(self._received)
        self._received.clear()
        return found

    def begin_anew(self, good: Mapping[PeerId, Published]) -> None:
        """Note that this peer has replaced its state by the `good` vectors of others (`checked`), or, if `good` is
        empty, goes on from its own model alone. Shares that it has split off before do not come back any more."""
        if self._exchange.estimates is not None:
            for one in good.values():
                self._exchange.estimates.goes_on_from(one)
        if self._shares is not None:
            self._exchange.giving.withdraw()
            self._shares.reset()

    def close(self) -> None:
        """Stop giving vectors to other peers."""
        self._exchange.close()

    async def _look(self, round: int, found: dict[PeerId, Published | Shown], came_s: dict[PeerId, float]) -> None:
        """Look for vectors on the boards of those neighbours whose boards can be read, for a while."""
        looking = [peer for peer in self._awaited if self._exchange.showing.shows(peer)]
        for looks in range(1, self._looks + _NAPS + 1):
            for peer in looking:
                try:
                    shown = self._exchange.find(peer, round)
                except WrongNumbers as wrong:
                    self._awaited.discard(peer)
                    self._members.lost(peer, wrong.why)
                else:
                    if shown is not None:
                        found[peer], came_s[peer] = shown, self._now()
                        self._awaited.discard(peer)
            looking = [peer for peer in looking if peer in self._awaited]
            if not looking:
                return
            if looks > self._looks:
                await asyncio.sleep(_NAP_S)
            elif looks % _LOOKS_A_YIELD == 0:
                await asyncio.sleep(0)
            else:
                os.sched_yield()

    async def _pull(self, round: int, found: dict[PeerId, Published | Shown], came_s: dict[PeerId, float]) -> None:
        """Ask the other neighbours."""
        for peer in sorted(self._awaited):
            self._pulls[peer] = self._asked(peer, round, partial(self._came, came_s, peer))
        try:
            with self._stalls.waiting(lambda: [peer for peer, pull in self._pulls.items() if not pull.done()]):
                await asyncio.gather(*self._pulls.values(), return_exceptions=True)
            for peer, pull in self._pulls.items():
                try:
                    found[peer] = pull.result()
                except WrongNumbers as wrong:
                    self._members.lost(peer, wrong.why)
                except (PeerLost, asyncio.CancelledError):
                    pass  # the membership hears of it, too
        finally:
            for pull in self._pulls.values():
                pull.cancel()
            self._pulls.clear()

    def _asked(self, peer: PeerId, round: int, given: Callable[[], None]) -> asyncio.Task[Published | Shown]:
        """Ask a neighbour for its vector; see `NeighbourExchange.take`."""
        if round != NEWEST and self._exchange.by_rounds:
            return self._exchange.reach(peer, round, given)
        return asyncio.create_task(self._ask(peer, round, given), name="gossip")

    async def _ask(self, peer: PeerId, round: int, given: Callable[[], None]) -> Published | Shown:
        """The neighbour's newest vector, or its numbers only, or that for a mix where vectors are not taken by their
        rounds."""
        form = Form.DIFFERENCE if self._exchange.estimates is None else Form.NOTHING
        return await self._exchange.take(peer, round, given, form=form)

    async def _anew(self, taken: Taken, peer: PeerId) -> Taken:
        """What was taken, with the vector of `peer` taken once more, over the link."""
        sometimes("a neighbour has written over its vector")
        try:
            one = await self._exchange.take(peer, taken.vectors[peer].round)
        except PeerLost:
            return self._without(taken, peer)
        return replace(taken, vectors=dict(taken.vectors) | {peer: one})

    def _is_wrong(self, wrong: WrongNumbers) -> None:
        """A vector that was taken is wrong: its peer counts as lost, and no difference may lead from it."""
        self._members.lost(wrong.peer, wrong.why)
        if self._exchange.estimates is not None:
            self._exchange.estimates.forget(wrong.peer)

    def _without(self, taken: Taken, peer: PeerId) -> Taken:
        return self._among(taken, {other: one for other, one in taken.vectors.items() if other != peer})

    def _among(self, taken: Taken, vectors: Mapping[PeerId, Published | Shown]) -> Taken:
        """What was taken, with these vectors alone, weighed by the graph."""
        splits = taken.splits
        weights = dict.fromkeys(vectors, 1.0) if splits else self._graph.weights(taken.weights, self._links, vectors)
        mine = 1.0 if splits else 1.0 - sum(weights.values())
        return replace(taken, vectors=vectors, weights=weights, own=mine)

    def _came(self, came_s: dict[PeerId, float], peer: PeerId) -> None:
        came_s[peer] = self._now()

    def _is_near(self, peer: PeerId) -> bool:
        here = self._members.me.machine
        return any(one.id == peer and one.machine == here != "" for one in self._members.neighbours.now)

    def _left(self, member: Member, why: str) -> None:
        self._awaited.discard(member.id)
        if (pull := self._pulls.get(member.id)) is not None:
            pull.cancel()
        if why not in STILL_THERE:
            self._exchange.gone(member.id, anew=any(one.id == member.id for one in self._members.neighbours.now))
        elif self._shares is not None:
            self._shares.cut_off(member.id)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
