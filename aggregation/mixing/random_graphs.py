"""Random topologies. The random numbers are derived from the topology's own seed, so all peers draw the same graph.

Sources: degree-preserving switches (Taylor, "Constrained switchings in graphs", 1981); Watts and Strogatz, "Collective
dynamics of 'small-world' networks", Nature 393, 1998; epidemic learning: De Vos et al., "Epidemic learning: boosting
decentralized learning with randomized communication", NeurIPS 2023, arXiv 2310.01972.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as numbers

from .regular import Static
from .topology import Edge, Neighbours, Topology, Vertex, among, is_connected, needs_capacities, of_edges

_SWITCHES_PER_EDGE = 10


def _lattice(count: int, degree: int) -> list[Edge]:
    """Each vertex and the `degree` nearest ones on a circle; with an odd degree also the opposite one."""
    near = [(at, (at + hop) % count) for hop in range(1, degree // 2 + 1) for at in range(count)]
    across = [(at, at + count // 2) for at in range(count // 2)] if degree % 2 else []
    return sorted({(min(edge), max(edge)) for edge in near + across})


@dataclass(frozen=True, slots=True)
class RandomRegular(Static):
    """A connected random graph, drawn by `seed`, the same in all rounds. Each vertex has `degree` neighbours; all
    others where there are too few vertices for it, and one more where `degree` and the number of vertices are both
    odd. Raises ValueError on a degree below 2."""

    degree: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.degree < 2:
            raise ValueError(f"a degree of {self.degree} connects no graph, at least 2 does")

    def neighbours(self, count: int, round: int) -> Neighbours:
        degree = min(self.degree + (self.degree * count) % 2, count - 1)
        edges, chance = _lattice(count, degree), random.Random(f"regular {count} {degree} {self.seed}")
        while True:
            switch(edges, chance)
            if is_connected(found := of_edges(count, edges)):
                return found


def switch(
    edges: list[Edge], chance: random.Random, allowed: Callable[[int, int], bool] = lambda one, other: True
) -> None:
    """Randomise a graph in place, by the random numbers of `chance`: replace pairs of edges a-b, c-d by a-d, c-b, ten
    attempts for each edge. Every vertex keeps its number of neighbours; the graph need not stay connected. An attempt
    changes nothing where an edge would be there twice or lead from a vertex to itself, and where `allowed` returns
    False for the two vertices of a new edge."""
    present = set(edges)
    if len(edges) < 2:
        return
    for _ in range(_SWITCHES_PER_EDGE * len(edges)):
        one, other = chance.sample(range(len(edges)), 2)
        (a, b), (c, d) = edges[one], edges[other]
        if chance.random() < 0.5:
            c, d = d, c
        new = (min(a, d), max(a, d)), (min(c, b), max(c, b))
        if a == d or b == c or present.intersection(new) or new[0] == new[1]:
            continue
        if not (allowed(a, d) and allowed(c, b)):
            continue
        present.difference_update((edges[one], edges[other]))
        present.update(new)
        edges[one], edges[other] = new


@dataclass(frozen=True, slots=True)
class SmallWorld(Static):
    """A connected random graph, drawn by `seed`, the same in all rounds: a ring in which each vertex has the `degree`
    nearest ones as neighbours (an odd `degree` counts as one less; among too few vertices they have fewer), and then
    each edge is replaced, with the probability `rewired`, by one to a random vertex, unless that edge is there already.
    Raises ValueError on a degree below 2, and on a `rewired` outside of 0 to 1."""

    degree: int = 4
    rewired: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.degree < 2 or not 0 <= self.rewired <= 1:
            raise ValueError("the degree is at least 2, and the share of rewired edges from 0 to 1")

    def neighbours(self, count: int, round: int) -> Neighbours:
        edges = _lattice(count, min(self.degree - self.degree % 2, (count - 1) // 2 * 2 or count - 1))
        for again in numbers():
            chance = random.Random(f"small world {count} {self.seed} {again}")
            if is_connected(found := of_edges(count, self._elsewhere(count, edges, chance))):
                return found
        raise AssertionError("numbers() has no end")

    def _elsewhere(self, count: int, edges: list[Edge], chance: random.Random) -> list[Edge]:
        present = set(edges)
        for edge in edges:
            if chance.random() < self.rewired:
                other = chance.randrange(count)
                new = (min(edge[0], other), max(edge[0], other))
                if other != edge[0] and new not in present:
                    present.remove(edge)
                    present.add(new)
        return sorted(present)


@dataclass(frozen=True, slots=True)
class Epidemic:
    """In each round a vertex takes the vectors of `degree` others, drawn at random by `seed` and the round's number; of
    all others where there are fewer. Raises ValueError on a degree below 1."""

    degree: int = 2
    seed: int = 0
    directed = True
    varies = True

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ValueError("a peer takes from at least 1 other")

    def neighbours(self, count: int, round: int) -> Neighbours:
        def of(vertex: int) -> tuple[int, ...]:
            others = [other for other in range(count) if other != vertex]
            chance = random.Random(f"epidemic {count} {round} {vertex} {self.seed}")
            return tuple(sorted(chance.sample(others, min(self.degree, len(others)))))

        return tuple(map(of, range(count)))


@dataclass(frozen=True, slots=True)
class OneOf:
    """In each round a vertex takes the vector of one of its neighbours in `graph`, drawn at random by `seed` and the
    round's number; of none if it has none."""

    graph: Topology
    seed: int = 0
    directed = True
    varies = True

    @property
    def by_capacity(self) -> bool:
        return needs_capacities(self.graph)

    def among(self, peers: tuple[Vertex, ...]) -> Topology:
        return OneOf(among(self.graph, peers), self.seed)

    def neighbours(self, count: int, round: int) -> Neighbours:
        def of(vertex: int, others: tuple[int, ...]) -> tuple[int, ...]:
            chance = random.Random(f"one of {count} {round} {vertex} {self.seed}")
            return (chance.choice(others),) if others else ()

        return tuple(of(*each) for each in enumerate(self.graph.neighbours(count, round)))
