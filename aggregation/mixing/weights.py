"""The weights of a mix: the row of a vertex, and the matrix of all rows.

    undirected    W_ij = 1 / (1 + max(d_i, d_j)),    W_ii = 1 - sum_j W_ij        (Metropolis-Hastings)
    directed      W_ij = 1 / (1 + d_i)                                            (uniform)

Metropolis weights are symmetric and doubly stochastic (Xiao and Boyd, "Fast linear iterations for distributed
averaging", 2004). Uniform weights are doubly stochastic where every vertex gives to as many as it takes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from .topology import Neighbours, Topology


@lru_cache(maxsize=64)
def _neighbours(topology: Topology, count: int, round: int) -> Neighbours:
    return topology.neighbours(count, round)


def row(topology: Topology, count: int, vertex: int, round: int) -> Mapping[int, float]:
    """Weight by vertex, for `vertex` and its in-neighbours among `count` vertices in `round`. They sum to 1."""
    neighbours = _neighbours(topology, count, round if topology.varies else 0)
    return _row(neighbours, vertex, directed=topology.directed)


def takers(topology: Topology, count: int, vertex: int, round: int) -> tuple[int, ...]:
    """The vertices that take from `vertex` in `round`."""
    neighbours = _neighbours(topology, count, round if topology.varies else 0)
    if not topology.directed:
        return neighbours[vertex]
    return tuple(other for other, others in enumerate(neighbours) if vertex in others)


def matrix(topology: Topology, count: int, round: int) -> Tensor:
    """W [count, count], float64: one mix of the values x [count] gives W x."""
    found, neighbours = torch.zeros((count, count), dtype=torch.float64), topology.neighbours(count, round)
    for vertex in range(count):
        for other, weight in _row(neighbours, vertex, directed=topology.directed).items():
            found[vertex, other] = weight
    return found


def _row(neighbours: Neighbours, vertex: int, *, directed: bool) -> Mapping[int, float]:
    own = neighbours[vertex]
    weights = {other: 1.0 / (1 + max(len(own), 0 if directed else len(neighbours[other]))) for other in own}
    return {vertex: 1.0 - sum(weights.values())} | weights
