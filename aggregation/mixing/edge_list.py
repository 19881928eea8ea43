"""The topology of a user's own list of edges, which name peers by their numbers.

As peers come and go, the graph has the listed edges between the peers present. Where these leave several components,
the first peers of the components are joined in a line by added edges. So no peer is alone, and each gets two more
neighbours at most. A peer whose number is not in the list, or is already used by another peer, is a component of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ..options import number, whole
from .regular import Static
from .topology import Edge, Neighbours, Topology, Vertex, numbered, of_edges, parts_of

NUMBER_MAX = 99_999
TEXT_MAX = 12_000
"""The most letters of a list that is written in one line. A run tells its settings in one message."""


class Among:
    """A topology with one fixed graph, for one fixed set of peers, with relative weights of its edges. It is compared
    and hashed by identity. `neighbours` raises ValueError for another number of peers."""

    directed = False
    varies = False

    def __init__(self, graph: Neighbours, weights: Mapping[Edge, float]) -> None:
        self.graph, self.weights = graph, weights

    def neighbours(self, count: int, round: int) -> Neighbours:
        if count != len(self.graph):
            raise ValueError(f"this is the graph of {len(self.graph)} peers, not of {count}")
        return self.graph


@dataclass(frozen=True)
class EdgeList(Static):
    """The topology whose `edges`, each with its relative weight, lead between peers' numbers. `numbers`: all numbers
    that occur. Raises ValueError on no edges, and on a graph that is not connected."""

    edges: tuple[tuple[Edge, float], ...]
    numbers: frozenset[int] = field(init=False, compare=False)
    by_capacity = False

    def __post_init__(self) -> None:
        if not self.edges:
            raise ValueError("it has no edges")
        graph, order = self._whole()
        if left := parts_of(graph)[1:]:
            first = order[left[0][0]]
            raise ValueError(f"no edges lead from peer {order[0]} to peer {first}")
        object.__setattr__(self, "numbers", frozenset(order))

    def _whole(self) -> tuple[Neighbours, list[int]]:
        order = sorted({peer for edge, _ in self.edges for peer in edge})
        place = {peer: at for at, peer in enumerate(order)}
        return of_edges(len(order), ((place[one], place[other]) for (one, other), _ in self.edges)), order

    @classmethod
    def parsed(cls, text: str) -> EdgeList:
        """The topology of a list in one line: ``0-1,1-2,0-2``, or with weights ``0-1*0.5,1-2*2``; an edge without one
        has the weight 1. Raises ValueError on any other text, on an edge that is repeated or leads from a peer to
        itself, on a number above 99,999, on a weight outside of 1e-6 to 1e6, and on a graph that is not connected."""
        found: dict[Edge, float] = {}
        for one in text.split(","):
            ends, star, weight = one.strip().partition("*")
            first, dash, second = ends.partition("-")
            if not dash or max(len(first), len(second), len(weight)) > 20:
                raise ValueError(f"{one.strip()[:40]!r} is no edge as 0-1 or 0-1*0.5")
            add(found, whole(first), whole(second), number(weight) if star else 1.0)
        return cls(tuple(sorted(found.items())))

    @property
    def text(self) -> str:
        """The list in one line, as `parsed` takes it; weights are rounded to six digits."""
        return ",".join(f"{a}-{b}" if weight == 1 else f"{a}-{b}*{weight:.6g}" for (a, b), weight in self.edges)

    def neighbours(self, count: int, round: int) -> Neighbours:
        return self.among(tuple(numbered(count))).neighbours(count, round)

    def among(self, peers: tuple[Vertex, ...]) -> Topology:
        place: dict[int, int] = {}
        for at, peer in enumerate(peers):
            place.setdefault(peer.number, at)
        weights = {
            (min(place[a], place[b]), max(place[a], place[b])): weight
            for (a, b), weight in self.edges
            if a in place and b in place
        }
        heaviest = max(weight for _, weight in self.edges)
        firsts = [part[0] for part in parts_of(of_edges(len(peers), weights))]
        weights |= dict.fromkeys(pairwise(firsts), heaviest)
        return Among(of_edges(len(peers), weights), weights)


def add(found: dict[Edge, float], one: int, other: int, weight: float) -> None:
    """Add the edge between the peers numbered `one` and `other`, with its `weight`, to `found`: (lower number, higher
    number) -> weight. Raises ValueError on an edge from a peer to itself, on one that is there already, on a number
    above 99,999, and on a weight outside of 1e-6 to 1e6."""
    edge = min(one, other), max(one, other)
    if one == other:
        raise ValueError(f"peer {one} cannot be its own neighbour")
    if edge[1] > NUMBER_MAX:
        raise ValueError(f"peers have numbers up to {NUMBER_MAX}, got {edge[1]}")
    if not (1e-6 <= weight <= 1e6):
        raise ValueError(f"a weight is a number from 1e-6 to 1e6, got {weight:g}")
    if edge in found:
        raise ValueError(f"the edge of {edge[0]} and {edge[1]} is there already")
    found[edge] = weight
