"""How fast gossip over a topology brings the models of all peers together.

The distance of all models from their mean is multiplied in each round by rho at most, the largest singular value of W
less the mean. For a symmetric W and for one that looks alike from each vertex, rho is the second largest modulus of W's
eigenvalues, and in the long run the distance is multiplied by rho itself. For a topology that varies, rho is an average
over rounds: that of the product of the W of rounds 1 to 24, to the power 1 / 24.
"""

from __future__ import annotations

import math

import torch

from .topology import Topology
from .weights import matrix

_ROUNDS = 24
_EXACT = 1e-9
"""A norm below this counts as 0: it is rounding."""


def rho(topology: Topology, count: int) -> float:
    """The factor by which the distance of `count` models from their mean is multiplied in a round at most; for a
    topology that varies, on average over rounds 1 to 24. 0: the models become equal, in one round, or in at most 24
    where the topology varies. 1 or more: the distance need not shrink. It can be above 1 only where W is not doubly
    stochastic."""
    rounds = _ROUNDS if topology.varies else 1
    product = torch.eye(count, dtype=torch.float64)
    for round in range(1, rounds + 1):
        product = matrix(topology, count, round) @ product
    left = float(torch.linalg.matrix_norm(product - product.mean(0), 2))
    return left ** (1.0 / rounds) if left > _EXACT else 0.0


def rounds_to(topology: Topology, count: int, share: float) -> float:
    """Rounds until the distance of `count` peers' models from their mean has fallen to `share` (above 0, below 1) of
    its beginning, if each multiplies it by `rho`; not rounded. 1 where rho is 0, even if the topology varies and it
    takes several rounds; infinite where rho is 1 or more."""
    factor = rho(topology, count)
    if factor <= 0 or factor >= 1:
        return 1.0 if factor <= 0 else math.inf
    return math.log(share) / math.log(factor)
