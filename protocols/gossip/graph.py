"""The graph of a gossip: from whom a peer takes in a round, who takes from it, and with which weights it mixes.

Where each peer knows all members the graph is a topology of these, which all draw alike. Where a peer has links to a
few only (`protocols.swim.overlay`), these are the graph. Its Metropolis weights need the numbers of links of a peer's
neighbours, which each of them tells with its vector.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol

from ...aggregation.mixing.topology import Topology, Vertex, among
from ...aggregation.mixing.weights import row, takers
from ..members.port import Members
from ..transport import PeerId
from .lent import Shown
from .messages import Published

Weights = Mapping[PeerId, float]


class Graph(Protocol):
    """One peer's place in the graph, as it is now."""

    def takers(self, round: int) -> list[PeerId]:
        """The peers that take from this one in `round`."""
        ...

    def givers(self, round: int) -> Weights:
        """The peers from which this one takes in `round`, with their weights in the mix as far as these are known."""
        ...

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        """The weight of each vector that `came` of these givers; that of this peer's own vector is the rest to 1.
        `own_links`: the number of links that this peer told with its own vector."""
        ...


class OfTopology:
    """The graph is a topology, whose vertices are all peers that the membership knows."""

    def __init__(self, topology: Topology, members: Members) -> None:
        self._topology, self._members = topology, members

    def takers(self, round: int) -> list[PeerId]:
        topology, peers, place = self._graph()
        return [peers[vertex] for vertex in takers(topology, len(peers), place, round)]

    def givers(self, round: int) -> Weights:
        topology, peers, place = self._graph()
        weights = row(topology, len(peers), place, round)
        return {peers[vertex]: weight for vertex, weight in weights.items() if vertex != place}

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        return {peer: givers[peer] for peer in came}

    def _graph(self) -> tuple[Topology, list[PeerId], int]:
        """The topology of the peers that are there, its vertices in order, and this peer's place among them."""
        me = self._members.me
        ranked = sorted((me, *self._members.neighbours.now), key=lambda member: member.rank)
        peers = [member.id for member in ranked]
        vertices = (Vertex(one.attributes.data_shard, one.attributes.capacity) for one in ranked)
        return among(self._topology, vertices), peers, peers.index(me.id)


class OfLinks:
    """The graph are the links. `drawn`: a peer takes along so many of them in a round, drawn anew for each; None:
    along all."""

    def __init__(self, members: Members, drawn: int | None) -> None:
        self._members, self._drawn = members, drawn

    def takers(self, round: int) -> list[PeerId]:
        return [member.id for member in self._members.neighbours.now]

    def givers(self, round: int) -> Weights:
        links = sorted(member.id for member in self._members.neighbours.now)
        if self._drawn is not None:
            links = random.Random(f"{self._members.me.id} {round}").sample(links, min(len(links), self._drawn))
        return dict.fromkeys(links, 0.0)

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        if self._drawn is not None:
            return dict.fromkeys(came, 1.0 / (1 + max(1, min(own_links, self._drawn))))
        return {peer: 1.0 / (1 + max(own_links, one.told.links)) for peer, one in came.items()}
