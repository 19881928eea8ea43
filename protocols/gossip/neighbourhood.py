"""A peer's neighbours in each round, by the topology, and their vectors with the weights of the mix."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from ...aggregation.mixing.topology import Topology, Vertex, among
from ...aggregation.mixing.weights import row, takers
from ..collectives.bound import Bound, WrongNumbers
from ..link.link import PeerLost
from ..members.neighbours import STILL_THERE
from ..members.port import Members
from ..members.view import Member
from ..stalls.stalls import Stalls
from ..testpoints import sometimes
from ..transport import PeerId
from .exchange import NeighbourExchange
from .messages import NEWEST, Published
from .mixing import check, check_own
from .shares import Shares, split


@dataclass(frozen=True, slots=True)
class Taken:
    """The vectors that arrived in a round, and the `weights` of the mix: of each neighbour that gave one, and `own`, of
    this peer's own. `waited_s`: until the last vector was published; `waited_for`: its peer."""

    vectors: Mapping[PeerId, Published]
    weights: Mapping[PeerId, float]
    own: float
    waited_s: float
    waited_for: PeerId | None


NOTHING = Taken({}, {}, 1.0, 0.0, None)


class Neighbourhood:
    """One peer's neighbours in `topology`, whose vertices are the peers that the membership knows. `bound`: on the
    norms of their models. `shares`: a vector is split between this peer and its takers; None: all of it is given."""

    def __init__(
        self,
        exchange: NeighbourExchange,
        members: Members,
        stalls: Stalls,
        topology: Topology,
        bound: Bound,
        shares: Shares | None = None,
    ) -> None:
        self._exchange, self._members, self._stalls, self._shares = exchange, members, stalls, shares
        self._topology, self._bound = topology, bound
        self._received = Counter[PeerId]()
        self.on_round: list[Callable[[], None]] = []
        """Called after each exchange of a round."""
        self._pulls: dict[PeerId, asyncio.Task[Published | None]] = {}
        members.neighbours.on_left.append(self._left)

    async def publish(self, one: Published) -> Tensor:
        """Give `one` to the neighbours that ask for it. Returns the vector [n] that this peer itself mixes: the one
        that they get, or its own rest where vectors are split. Raises ValueError for a vector that is not finite."""
        await check_own(one.vector)
        topology, peers, place = self._graph()
        of = [peers[vertex] for vertex in takers(topology, len(peers), place, one.round)]
        if self._shares is None:
            return await self._exchange.publish(one, of)
        of = [] if one.last else of
        share, rest = split(one.vector, len(of))
        await self._exchange.publish(replace(one, vector=share), of)
        return rest

    async def take(self, round: int, mixed: int, anchor: Tensor) -> Taken:
        """The vectors of the neighbours in the graph of the round `mixed`, as far as they give theirs: those of
        `round`, or newer ones. `anchor` [n]: this peer's own model, beside which theirs must not be too large."""
        began_s, (topology, peers, place) = self._now(), self._graph()
        weights = row(topology, len(peers), place, mixed)
        of = {peers[vertex]: weight for vertex, weight in weights.items() if vertex != place}
        came_s: dict[PeerId, float] = {}
        self._exchange.only(of)
        for peer in sorted(of):
            self._pulls[peer] = asyncio.create_task(self._take(peer, round, anchor, came_s), name="gossip")
        try:
            with self._stalls.waiting(lambda: [peer for peer, pull in self._pulls.items() if not pull.done()]):
                await asyncio.gather(*self._pulls.values(), return_exceptions=True)
            found = {peer: pull.result() for peer, pull in self._pulls.items() if not pull.cancelled()}
        finally:
            for pull in self._pulls.values():
                pull.cancel()
            self._pulls.clear()
        for done in self.on_round:
            done()
        vectors = {peer: one for peer, one in found.items() if one is not None}
        if len(vectors) < len(of):
            sometimes("a neighbour gave nothing")
        last = max(came_s, key=lambda peer: came_s[peer], default=None)
        until_s = self._now() if last is None or len(vectors) < len(of) else came_s[last]
        if self._shares is not None and round != NEWEST:
            return Taken(vectors, dict.fromkeys(vectors, 1.0), 1.0, until_s - began_s, last)
        weights_of = {peer: of[peer] for peer in vectors}
        return Taken(vectors, weights_of, 1.0 - sum(weights_of.values()), until_s - began_s, last)

    def back(self) -> list[Tensor]:
        """What is to be added to this peer's own vector, [n] each, since the last call: its shares that nobody has
        taken."""
        return [] if self._shares is None else self._shares.back()

    def received(self) -> Mapping[PeerId, int]:
        """Bytes of vectors that each neighbour has given this peer since the last call."""
        found = dict(self._received)
        self._received.clear()
        return found

    def begin_anew(self) -> None:
        """This peer's state begins anew: its former shares are no longer its own."""
        if self._shares is not None:
            self._exchange.withdraw()
            self._shares.reset()

    def close(self) -> None:
        """Give nothing any more."""
        self._exchange.close()

    async def _take(self, peer: PeerId, round: int, anchor: Tensor, came_s: dict[PeerId, float]) -> Published | None:
        """The neighbour's vector; None: it gives none."""
        try:
            given = partial(self._came, came_s, peer)
            one = await (self._exchange.take(peer, NEWEST, given) if round == NEWEST else self._ask(peer, round, given))
            self._received[peer] += one.carried_bytes
            await check(peer, one.vector, anchor, self._bound)
            return one
        except WrongNumbers as wrong:
            self._members.lost(peer, wrong.why)
        except PeerLost:
            pass  # the membership hears of it, too
        return None

    async def _ask(self, peer: PeerId, round: int, given: Callable[[], None]) -> Published:
        """The neighbour's vector for a mix; see `NeighbourExchange.take`."""
        return await self._exchange.take(peer, round, given)

    def _came(self, came_s: dict[PeerId, float], peer: PeerId) -> None:
        came_s[peer] = self._now()

    def _graph(self) -> tuple[Topology, list[PeerId], int]:
        """The topology of the peers that are there, its vertices in order, and this peer's place among them."""
        me = self._members.me
        ranked = sorted((me, *self._members.neighbours.now), key=lambda member: member.rank)
        peers = [member.id for member in ranked]
        vertices = (Vertex(one.attributes.data_shard, one.attributes.capacity) for one in ranked)
        return among(self._topology, vertices), peers, peers.index(me.id)

    def _left(self, member: Member, why: str) -> None:
        if (pull := self._pulls.get(member.id)) is not None:
            pull.cancel()
        if why not in STILL_THERE:
            self._exchange.gone(member.id)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
