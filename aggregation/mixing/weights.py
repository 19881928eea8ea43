"""The weights with which a vertex mixes vectors. W_ij is the weight that vertex i gives to the vector of its
in-neighbour j, and W_ii that of its own. d_i is the number of in-neighbours of i, and w_ij the relative weight of an
edge.

    undirected    W_ij = 1 / (1 + max(d_i, d_j)),    W_ii = 1 - sum_j W_ij        (Metropolis-Hastings)
    with weights  W_ij = w_ij / (max w + max(s_i, s_j)),    s_i = sum_j w_ij      (the same where all w are alike)
    directed      W_ij = 1 / (1 + d_i)                                            (uniform)

Metropolis weights are symmetric and doubly stochastic (Xiao and Boyd, "Fast linear iterations for distributed
averaging", 2004). Uniform weights are doubly stochastic where every vertex gives to as many as it takes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from .topology import Edge, Neighbours, Topology, among, numbered


@runtime_checkable
class Weighted(Protocol):
    """An undirected topology whose edges have weights, relative to each other. `weights`: by edge, its lesser vertex
    first; an edge without one counts as 1. The weights of a directed topology are ignored."""

    @property
    def weights(self) -> Mapping[Edge, float]: ...


@lru_cache(maxsize=64)
def _neighbours(topology: Topology, count: int, round: int) -> Neighbours:
    return topology.neighbours(count, round)


def row(topology: Topology, count: int, vertex: int, round: int) -> Mapping[int, float]:
    """The weights with which `vertex` mixes in `round`, among `count` vertices: by vertex, for itself and its
    in-neighbours. They sum to 1. A topology `OfPeers` is that of peers numbered from 0, of unknown capacity."""
    topology = among(topology, numbered(count))
    return _row(topology, _neighbours(topology, count, round if topology.varies else 0), vertex)


def takers(topology: Topology, count: int, vertex: int, round: int) -> tuple[int, ...]:
    """The vertices that have `vertex` among their in-neighbours in `round`, and so take its vector."""
    neighbours = _neighbours(topology, count, round if topology.varies else 0)
    if not topology.directed:
        return neighbours[vertex]
    return tuple(other for other, others in enumerate(neighbours) if vertex in others)


def matrix(topology: Topology, count: int, round: int) -> Tensor:
    """The matrix W [count, count], float64, of all vertices' weights in `round` (`row`): the values x [count] become W
    x in one mix."""
    topology = among(topology, numbered(count))
    found, neighbours = torch.zeros((count, count), dtype=torch.float64), topology.neighbours(count, round)
    for vertex in range(count):
        for other, weight in _row(topology, neighbours, vertex).items():
            found[vertex, other] = weight
    return found


def _row(topology: Topology, neighbours: Neighbours, vertex: int) -> Mapping[int, float]:
    own = neighbours[vertex]
    if topology.directed:
        weights = dict.fromkeys(own, 1.0 / (1 + len(own)))
    else:
        weight = topology.weights if isinstance(topology, Weighted) else {}
        most = max(weight.values(), default=1.0)

        def edge(one: int, other: int) -> float:
            return weight.get((min(one, other), max(one, other)), 1.0)

        def busy(one: int) -> float:
            return sum(edge(one, other) for other in neighbours[one]) if weight else len(neighbours[one])

        mine = busy(vertex)
        weights = {other: edge(vertex, other) / (most + max(mine, busy(other))) for other in own}
    return {vertex: 1.0 - sum(weights.values())} | weights
