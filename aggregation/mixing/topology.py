"""The port of topologies: graphs of `count` vertices, numbered from 0, for any count and any round.

A topology is a pure function, so peers that know the same peers have the same graph without a message, and have another
one as soon as a peer comes or goes. A vertex mixes what its in-neighbours have; in an undirected graph these are all
its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

Edge = tuple[int, int]
"""Two vertices of an undirected graph, the lower one first."""
Neighbours = tuple[tuple[int, ...], ...]
"""The neighbours of each vertex, in order."""


class Topology(Protocol):
    """A graph for each number of vertices and each round. A topology can be hashed; two that are equal have the same
    graphs."""

    def __hash__(self) -> int: ...

    @property
    def directed(self) -> bool:
        """Whether a vertex may take from another one that does not take from it."""
        ...

    @property
    def varies(self) -> bool:
        """Whether rounds have different graphs."""
        ...

    def neighbours(self, count: int, round: int) -> Neighbours:
        """The in-neighbours of each of `count` vertices (at least 1), none of which is its own neighbour."""
        ...


class Vertex(NamedTuple):
    """What a topology may know of a peer. `number`: its number in the run, which a late peer may share with another
    one. `capacity`: bytes a second that it can send; 0: unknown."""

    number: int
    capacity: int = 0


@runtime_checkable
class OfPeers(Protocol):
    """A topology whose graph goes by which peers there are, not by their count alone."""

    @property
    def by_capacity(self) -> bool:
        """Whether it goes by what they can send."""
        ...

    def among(self, peers: tuple[Vertex, ...]) -> Topology:
        """The topology of these vertices, in their order: its graphs have as many vertices, and no others."""
        ...


def needs_capacities(topology: Topology) -> bool:
    """Whether its graph goes by what peers can send."""
    return isinstance(topology, OfPeers) and topology.by_capacity


@lru_cache(maxsize=256)
def _among(topology: OfPeers, peers: tuple[Vertex, ...]) -> Topology:
    return topology.among(peers)


def among(topology: Topology, peers: Iterable[Vertex]) -> Topology:
    """The topology of these peers."""
    return _among(topology, tuple(peers)) if isinstance(topology, OfPeers) else topology


def numbered(count: int) -> Iterable[Vertex]:
    """Vertices with the numbers from 0 on, of unknown capacity."""
    return map(Vertex, range(count))


def of_edges(count: int, edges: Iterable[Edge]) -> Neighbours:
    """The neighbours in an undirected graph. An edge may be given twice; an edge of a vertex to itself is left out."""
    found: list[set[int]] = [set() for _ in range(count)]
    for one, other in edges:
        if one != other:
            found[one].add(other)
            found[other].add(one)
    return tuple(tuple(sorted(each)) for each in found)


def is_connected(neighbours: Neighbours) -> bool:
    """Whether vertex 0 gets what any other vertex has. In an undirected graph and in one that looks alike from each
    vertex, every vertex then does."""
    return len(_reached(neighbours, 0)) == len(neighbours)


def parts_of(neighbours: Neighbours) -> list[list[int]]:
    """The connected parts of an undirected graph, each in order, by their first vertices."""
    parts: list[list[int]] = []
    seen: set[int] = set()
    for vertex in range(len(neighbours)):
        if vertex not in seen:
            parts.append(sorted(_reached(neighbours, vertex)))
            seen.update(parts[-1])
    return parts


def _reached(neighbours: Neighbours, vertex: int) -> set[int]:
    """The vertices whose values come to `vertex`, and itself."""
    seen, ahead = {vertex}, [vertex]
    while ahead:
        for other in neighbours[ahead.pop()]:
            if other not in seen:
                seen.add(other)
                ahead.append(other)
    return seen
