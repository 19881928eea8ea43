"""The graph of a gossip. It tells the peers whose vectors a peer takes in a round (its givers), the peers that take its
vector (its takers), and the weights of its mix.

Where each peer knows all members, the graph is a topology over them, which every peer computes alike. Where a peer has
links to only a few others (`protocols.swim.overlay`), these links are the graph. Its Metropolis weights need the number
of links of each neighbour, which the neighbour tells with its vector.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ...aggregation.mixing.topology import Topology, Vertex, among
from ...aggregation.mixing.weights import row, takers
from ..members.port import Members
from ..members.view import Member
from ..testpoints import witness, witnessed
from ..transport import PeerId
from .lent import Shown
from .messages import Published

Weights = Mapping[PeerId, float]


@dataclass(frozen=True, slots=True)
class Placed:
    """Event for a simulation's checkers: a peer has worked out its place in the undirected graph of a topology over
    `peers`, each with its vertex, in their order, for `round`, or for all rounds (-1). `weights`: of its givers,
    without its own."""

    round: int
    peers: tuple[tuple[PeerId, Vertex], ...]
    weights: Weights


class Graph(Protocol):
    """One peer's place in the graph. All but `weights` answer by the members that are known at the moment of the call;
    a weight follows from the arguments alone."""

    def takers(self, round: int) -> list[PeerId]:
        """The peers that take this peer's vector in `round`."""
        ...

    def givers(self, round: int) -> Weights:
        """The peers whose vectors this one takes in `round`, each with its weight in the mix, or 0.0 where the weight
        is known only when the vector has come (`weights`)."""
        ...

    def is_taken_by_all(self, peer: PeerId, round: int) -> bool:
        """Whether the vector of `peer` is known to be taken in `round` by all of this peer's takers besides itself."""
        ...

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        """The weight in the mix of each vector that `came`. What is missing to 1 is the weight of this peer's own
        vector. `givers`: the result of `givers` for this round; `own_links`: the number of takers that this peer told
        with its own vector."""
        ...


_ALWAYS = -1
"""Stands for the round where the graph is the same in all rounds."""


class OfTopology:
    """The graph of a topology whose vertices are all peers that the membership knows. The weight of a giver whose
    vector did not come goes to this peer's own vector. With `in_groups` the vectors that came and this peer's own have
    equal weights instead (`Algorithm.in_groups`)."""

    def __init__(self, topology: Topology, members: Members, *, in_groups: bool = False) -> None:
        self._topology, self._members, self._in_groups = topology, members, in_groups
        self._known: tuple[tuple[Member, ...], int] = (), 0
        self._found: tuple[list[PeerId], Weights] = [], {}
        """The takers and givers among the `_known` members, in that round, or in all."""

    def takers(self, round: int) -> list[PeerId]:
        return self._of(round)[0]

    def givers(self, round: int) -> Weights:
        return self._of(round)[1]

    def is_taken_by_all(self, peer: PeerId, round: int) -> bool:
        own = {*self.takers(round)} - {peer}
        ranked = self._ranked()
        peers = [member.id for member in ranked]
        topology = among(self._topology, [_vertex(member) for member in ranked])
        return peer in peers and own <= {
            peers[other] for other in takers(topology, len(peers), peers.index(peer), round)
        }

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        if self._in_groups:
            return dict.fromkeys(came, 1.0 / (1 + len(came)))
        return {peer: givers[peer] for peer in came}

    def _of(self, round: int) -> tuple[list[PeerId], Weights]:
        """The takers and givers of a round. Graphs that stay are worked out once."""
        members = (self._members.me, *self._members.neighbours.now)
        known = (members, round if self._topology.varies else _ALWAYS)
        if known != self._known:
            ranked = self._ranked()
            peers, place = [member.id for member in ranked], ranked.index(members[0])
            vertices = [_vertex(member) for member in ranked]
            topology = among(self._topology, vertices)
            weights = row(topology, len(peers), place, round)
            to = [peers[vertex] for vertex in takers(topology, len(peers), place, round)]
            of = {peers[vertex]: weight for vertex, weight in weights.items() if vertex != place}
            self._known, self._found = known, (to, of)
            if witnessed() and not topology.directed:
                witness(Placed(known[1], tuple(zip(peers, vertices, strict=True)), of))
        return self._found

    def _ranked(self) -> list[Member]:
        """All peers that the membership knows, in the order of their vertices."""
        return sorted((self._members.me, *self._members.neighbours.now), key=lambda member: member.rank)


def _vertex(member: Member) -> Vertex:
    return Vertex(member.attributes.data_shard, member.attributes.capacity)


class OfLinks:
    """The graph of this peer's links. `drawn`: a peer takes from at most this many of them in a round, drawn anew in
    each; None: from all."""

    def __init__(self, members: Members, drawn: int | None) -> None:
        self._members, self._drawn = members, drawn

    def takers(self, round: int) -> list[PeerId]:
        return [member.id for member in self._members.neighbours.now]

    def givers(self, round: int) -> Weights:
        links = sorted(member.id for member in self._members.neighbours.now)
        if self._drawn is not None:
            links = random.Random(f"{self._members.me.id} {round}").sample(links, min(len(links), self._drawn))
        return dict.fromkeys(links, 0.0)

    def is_taken_by_all(self, peer: PeerId, round: int) -> bool:
        return False

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        if self._drawn is not None:
            return dict.fromkeys(came, 1.0 / (1 + max(1, min(own_links, self._drawn))))
        return {peer: 1.0 / (1 + max(own_links, one.told.links)) for peer, one in came.items()}
