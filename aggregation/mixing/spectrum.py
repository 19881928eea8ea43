"""How fast a topology brings all peers together.

The distance of all models from their mean falls at least by rho in each round, the largest singular value of W less the
mean. For a symmetric W and for one that looks alike from each vertex, it is the second largest modulus of W's
eigenvalues, and the distance falls by it in the long run. For a topology that varies, rho is that of a round on
average: the one of a product of rounds, to the power 1 / rounds.
"""

from __future__ import annotations

import math

import torch

from .topology import Topology
from .weights import matrix

_ROUNDS = 24
_EXACT = 1e-9
"""Below this a distance is one of rounding."""


def rho(topology: Topology, count: int) -> float:
    """The factor by which consensus distance falls in a round, from 0 (exact at once) to 1 (never)."""
    rounds = _ROUNDS if topology.varies else 1
    product = torch.eye(count, dtype=torch.float64)
    for round in range(1, rounds + 1):
        product = matrix(topology, count, round) @ product
    left = float(torch.linalg.matrix_norm(product - product.mean(0), 2))
    return left ** (1.0 / rounds) if left > _EXACT else 0.0


def rounds_to(topology: Topology, count: int, share: float) -> float:
    """Rounds until consensus distance has fallen to `share` of what it was, in the long run; infinite: never."""
    factor = rho(topology, count)
    if factor <= 0 or factor >= 1:
        return 1.0 if factor <= 0 else math.inf
    return math.log(share) / math.log(factor)
