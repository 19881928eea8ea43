"""Topologies that are given by a rule: ring, wheel, torus, star, complete, and the two exponential graphs. All but the
exponential ones are undirected, and all but the one-peer graph are the same in every round.

Source of the exponential graphs: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019,
arXiv 1811.10792, and Ying et al., "Exponential graph is provably efficient for decentralized deep training", NeurIPS
2021, arXiv 2110.13363: in the one-peer graph 2^k peers have the exact mean after k rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .topology import Edge, Neighbours, of_edges


def _around(count: int, first: int = 0) -> Iterator[Edge]:
    """The edges of a ring of the vertices from `first` on."""
    size = count - first
    return ((first + at, first + (at + 1) % size) for at in range(size))


@dataclass(frozen=True, slots=True)
class Static:
    """Base class of the topologies whose graph is undirected and the same in every round."""

    directed = False
    varies = False


@dataclass(frozen=True, slots=True)
class Ring(Static):
    """Each vertex is joined to the next one, and the last to the first."""

    def neighbours(self, count: int, round: int) -> Neighbours:
        return of_edges(count, _around(count))


@dataclass(frozen=True, slots=True)
class Star(Static):
    """Vertex 0 is joined to all others, which have no other neighbours."""

    def neighbours(self, count: int, round: int) -> Neighbours:
        return of_edges(count, ((0, other) for other in range(1, count)))


@dataclass(frozen=True, slots=True)
class Wheel(Static):
    """A ring of all vertices but vertex 0; vertex 0 is joined to each of them."""

    def neighbours(self, count: int, round: int) -> Neighbours:
        spokes = [(0, other) for other in range(1, count)]
        return of_edges(count, [*spokes, *_around(count, 1)] if count > 1 else spokes)


@dataclass(frozen=True, slots=True)
class Complete(Static):
    """Every vertex is joined to every other."""

    def neighbours(self, count: int, round: int) -> Neighbours:
        return of_edges(count, ((one, other) for other in range(count) for one in range(other)))


@dataclass(frozen=True, slots=True)
class Torus(Static):
    """A grid of rows and columns, each of them closed to a ring. The number of rows is the largest divisor of the count
    that is not above its root, so a prime count gives a ring."""

    def neighbours(self, count: int, round: int) -> Neighbours:
        rows = next(one for one in range(math.isqrt(count), 0, -1) if count % one == 0)
        columns = count // rows
        places = [divmod(vertex, columns) for vertex in range(count)]
        right = ((row * columns + at, row * columns + (at + 1) % columns) for row, at in places)
        down = ((row * columns + at, (row + 1) % rows * columns + at) for row, at in places)
        return of_edges(count, [*right, *down])


def _hops(count: int) -> list[int]:
    return [2**power for power in range((count - 1).bit_length())]


@dataclass(frozen=True, slots=True)
class Exponential:
    """Vertex v takes from the vertices v - 1, v - 2, v - 4, ..., for all powers of 2 below the number of vertices and
    modulo it, in every round."""

    directed = True
    varies = False

    def neighbours(self, count: int, round: int) -> Neighbours:
        return tuple(tuple(sorted({(vertex - hop) % count for hop in _hops(count)})) for vertex in range(count))


@dataclass(frozen=True, slots=True)
class OnePeerExponential:
    """Each vertex takes from one other in a round: vertex v from v - 1 in round 0, then from v - 2, v - 4, and so on
    for all powers of 2 below the number of vertices and modulo it, then from v - 1 again. A single vertex takes from
    none."""

    directed = True
    varies = True

    def neighbours(self, count: int, round: int) -> Neighbours:
        hops = _hops(count)
        if not hops:
            return ((),)
        hop = hops[round % len(hops)]
        return tuple(((vertex - hop) % count,) for vertex in range(count))
