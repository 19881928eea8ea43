"""The port of topologies: graphs of `count` vertices, numbered from 0, for any count and any round.

A topology is a pure function, so peers that know the same peers have the same graph without a message, and have another
one as soon as a peer comes or goes. A vertex mixes what its in-neighbours have; in an undirected graph these are all
its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

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
    seen, ahead = {0}, [0]
    while ahead:
        for other in neighbours[ahead.pop()]:
            if other not in seen:
                seen.add(other)
                ahead.append(other)
    return len(seen) == len(neighbours)
