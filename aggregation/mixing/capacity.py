"""A random graph in which a peer has the more neighbours the more it can send.

A peer with d neighbours sends d vectors in a round. At bandwidth b that takes it a time in proportion to d / b. Where
all peers have equally many neighbours, the peer with the slowest link delays all its neighbours. Here the numbers of
neighbours are in proportion to the bandwidths, so the times are alike, and a peer with a slow link has one:

    d_i = degree b_i / median(b), at least 1, at most 4 degree

The graph of these numbers is that of Havel (1955) and Hakimi (1962), then changed at random by switches that keep the
numbers, until it is connected; after 50 tries its components are joined by further edges. Metropolis weights keep the
mean of all models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from statistics import median

from .edge_list import Among
from .random_graphs import switch
from .regular import Static
from .topology import Edge, Neighbours, Topology, Vertex, is_connected, numbered, of_edges, parts_of

_DRAWS = 50
_MOST = 4
"""The most neighbours of a peer, as a multiple of ``degree``: an edge weighs less when either end has more neighbours,
so a peer with very many would mix slowly with each of them."""


@dataclass(frozen=True, slots=True)
class Capacity(Static):
    """The topology that gives each peer neighbours in proportion to its capacity, the bandwidth at which it can send.
    `degree`: neighbours of a peer of median capacity. `seed`: that of the random graph, so that all peers draw the same
    one. Raises ValueError on a degree below 2."""

    degree: int = 4
    seed: int = 0
    by_capacity = True

    def __post_init__(self) -> None:
        if self.degree < 2:
            raise ValueError(f"{self.degree} neighbours of a usual peer connect no graph, at least 2 do")

    def neighbours(self, count: int, round: int) -> Neighbours:
        return self.among(tuple(numbered(count))).neighbours(count, round)

    def among(self, peers: tuple[Vertex, ...]) -> Topology:
        wished = degrees([peer.capacity for peer in peers], self.degree)
        edges, chance = _havel_hakimi(wished), random.Random(f"capacity {wished} {self.seed}")
        for _ in range(_DRAWS):
            switch(edges, chance, lambda a, b: wished[a] >= self.degree or wished[b] >= self.degree)
            if is_connected(found := of_edges(len(peers), edges)):
                return Among(found, {})
        firsts = [part[0] for part in parts_of(found)]
        return Among(of_edges(len(peers), [*edges, *pairwise(firsts)]), {})


def degrees(capacities: Sequence[int], usual: int) -> list[int]:
    """The number of neighbours of each peer, in proportion to its capacity, from 1 to 4 `usual` and at most all others.
    A capacity of 0 is unknown and counts as the median of the others. `usual`: the number for a peer of median
    capacity. The numbers have an even sum, and are enough to connect the graph, for which the fastest peers may get
    more; fewer than two peers have 0 each."""
    count = len(capacities)
    if count < 2:
        return [0] * count
    middle = median([one for one in capacities if one] or [1])
    rates = [(one or middle) / middle for one in capacities]
    most = min(_MOST * usual, count - 1)
    found = [min(max(1, round(usual * rate)), most) for rate in rates]
    fastest = sorted(range(count), key=lambda at: (-rates[at], at))
    for at in cycle(fastest):
        if sum(found) >= 2 * (count - 1) and sum(found) % 2 == 0:
            return found
        found[at] += found[at] < count - 1
    raise AssertionError("a cycle has no end")


def _havel_hakimi(wished: Sequence[int]) -> list[Edge]:
    """Edges that give each vertex so many neighbours, or fewer where no graph has these numbers: the vertex that lacks
    least takes those that lack most, so that thin peers hang on others than each other, and the graph is connected."""
    lacking, edges = dict(enumerate(wished)), list[Edge]()
    while lacking:
        one = min(lacking, key=lambda at: (lacking[at], at))
        count = lacking.pop(one)
        for other in sorted(lacking, key=lambda at: (-lacking[at], at))[:count]:
            if lacking[other] > 0:
                lacking[other] -= 1
                edges.append((min(one, other), max(one, other)))
    return sorted(edges)
