"""The port of topologies: graphs of `count` vertices, numbered from 0, for any count and any round.

A vertex is a peer. A topology is a pure function: peers with the same list of peers compute the same graph without a
message, and a different one as soon as a peer comes or goes. A vertex mixes its own vector with those of its
in-neighbours; in an undirected graph these are all its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

Edge = tuple[int, int]
"""Two vertices of an undirected graph, the lower one first."""
Neighbours = tuple[tuple[int, ...], ...]
"""By vertex, its in-neighbours in ascending order."""


class Topology(Protocol):
    """The port of topologies: gives the graph for a number of vertices and a round. A topology can be hashed; two that
    are equal have the same graphs."""

    def __hash__(self) -> int: ...

    @property
    def directed(self) -> bool:
        """Whether a vertex may take another one's vector without giving its own to it."""
        ...

    @property
    def varies(self) -> bool:
        """Whether rounds have different graphs."""
        ...

    def neighbours(self, count: int, round: int) -> Neighbours:
        """The graph of `count` vertices (at least 1) in this round: the in-neighbours of each vertex. None is its own
        neighbour."""
        ...


class Vertex(NamedTuple):
    """The data about one peer by which a topology may place it in the graph. `number`: the peer's number in the run; a
    peer that joined late may have the same one as another. `capacity`: bytes a second that it can send; 0: unknown."""

    number: int
    capacity: int = 0


@runtime_checkable
class OfPeers(Protocol):
    """A topology whose graph depends on the numbers or capacities of the peers present, not on their count alone."""

    @property
    def by_capacity(self) -> bool:
        """Whether the graph depends on the peers' capacities."""
        ...

    def among(self, peers: tuple[Vertex, ...]) -> Topology:
        """The topology of exactly these peers: vertex i of its graphs is ``peers[i]``."""
        ...


def needs_capacities(topology: Topology) -> bool:
    """Whether the graph of `topology` depends on the peers' capacities, which peers must then measure and tell each
    other."""
    return isinstance(topology, OfPeers) and topology.by_capacity


@lru_cache(maxsize=256)
def _among(topology: OfPeers, peers: tuple[Vertex, ...]) -> Topology:
    return topology.among(peers)


def among(topology: Topology, peers: Iterable[Vertex]) -> Topology:
    """The topology to use for these peers, cached: ``topology.among(peers)`` where its graph depends on them
    (`OfPeers`), else `topology` itself."""
    return _among(topology, tuple(peers)) if isinstance(topology, OfPeers) else topology


def numbered(count: int) -> Iterable[Vertex]:
    """`count` vertices, numbered from 0, of unknown capacity: an iterator, to be read once."""
    return map(Vertex, range(count))


def of_edges(count: int, edges: Iterable[Edge]) -> Neighbours:
    """The neighbours of each of `count` vertices in the undirected graph of these edges. An edge may be given twice; an
    edge of a vertex to itself is left out."""
    found: list[set[int]] = [set() for _ in range(count)]
    for one, other in edges:
        if one != other:
            found[one].add(other)
            found[other].add(one)
    return tuple(tuple(sorted(each)) for each in found)


def is_connected(neighbours: Neighbours) -> bool:
    """Whether vertex 0 gets the vectors of all other vertices, directly or over others. For an undirected graph, and
    for one that looks alike from each vertex, this means that the graph is connected."""
    return len(_reached(neighbours, 0)) == len(neighbours)


def parts_of(neighbours: Neighbours) -> list[list[int]]:
    """The connected components of an undirected graph: each a list of its vertices in order, sorted by their first
    vertices."""
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
