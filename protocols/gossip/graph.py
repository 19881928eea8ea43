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
from ..members.view import Member
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


_ALWAYS = -1
"""The round of a graph that does not vary."""


class OfTopology:
    """The graph is a topology, whose vertices are all peers that the membership knows. `in_groups`: its neighbours
    stand in groups, and those of a group from which vectors came are mixed with equal weights; else one from which none
    came leaves its weight to this peer's own vector."""

    def __init__(self, topology: Topology, members: Members, *, in_groups: bool = False) -> None:
        self._topology, self._members, self._in_groups = topology, members, in_groups
        self._known: tuple[tuple[Member, ...], int] = (), 0
        self._found: tuple[list[PeerId], Weights] = [], {}
        """The takers and givers among the `_known` members, in that round, or in all."""

    def takers(self, round: int) -> list[PeerId]:
        return self._of(round)[0]

    def givers(self, round: int) -> Weights:
        return self._of(round)[1]

    def weights(self, givers: Weights, own_links: int, came: Mapping[PeerId, Published | Shown]) -> Weights:
        if self._in_groups:
            return dict.fromkeys(came, 1.0 / (1 + len(came)))
        return {peer: givers[peer] for peer in came}

    def _of(self, round: int) -> tuple[list[PeerId], Weights]:
        """The takers and givers of a round. Graphs that stay are worked out once."""
        members = (self._members.me, *self._members.neighbours.now)
        known = (members, round if self._topology.varies else _ALWAYS)
        if known != self._known:
            ranked = sorted(members, key=lambda member: member.rank)
            peers, place = [member.id for member in ranked], ranked.index(members[0])
            vertices = (Vertex(one.attributes.data_shard, one.attributes.capacity) for one in ranked)
            topology = among(self._topology, vertices)
            weights = row(topology, len(peers), place, round)
            to = [peers[vertex] for vertex in takers(topology, len(peers), place, round)]
            of = {peers[vertex]: weight for vertex, weight in weights.items() if vertex != place}
            self._known, self._found = known, (to, of)
        return self._found


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
