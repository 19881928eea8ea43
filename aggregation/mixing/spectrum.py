"""How fast a topology brings all peers together.

The distance of all models from their mean falls by rho in each round, the second largest modulus of W's eigenvalues.
For a topology that varies, rho is that of a round on average over one period: the product's, to the power 1 / rounds.
"""

from __future__ import annotations

import math

import numpy as np

from .topology import Topology
from .weights import matrix

_ROUNDS = 24
_EXACT = 1e-9
"""Below this a distance is one of rounding."""


def rho(topology: Topology, count: int) -> float:
    """The factor by which consensus distance falls in a round, from 0 (exact at once) to 1 (never)."""
    if not topology.varies:
        moduli = np.sort(np.abs(np.linalg.eigvals(matrix(topology, count, 1))))
        return 0.0 if count == 1 or moduli[-2] < _EXACT else float(moduli[-2])
    product = np.eye(count)
    for round in range(1, _ROUNDS + 1):
        product = matrix(topology, count, round) @ product
    left = np.linalg.norm(product - np.full((count, count), 1.0 / count) @ product, 2)
    return float(left) ** (1.0 / _ROUNDS) if left > _EXACT else 0.0


def rounds_to(topology: Topology, count: int, share: float) -> float:
    """Rounds until consensus distance has fallen to `share` of what it was, in the long run; infinite: never."""
    factor = rho(topology, count)
    if factor <= 0 or factor >= 1:
        return 1.0 if factor <= 0 else math.inf
    return math.log(share) / math.log(factor)
