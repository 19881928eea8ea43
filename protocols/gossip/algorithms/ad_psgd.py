"""AD-PSGD: asynchronous decentralized SGD. After its local steps a peer averages its model with that of one random
neighbour, which may be in the middle of its own local steps.

Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018, arXiv 1710.06952,
Algorithm 1, here with `period` local steps between two averages:

    x_i, x_j <- (x_i + x_j) / 2        for a random neighbour j, atomically (`pairs`)
    x_i <- x_i - the local steps' updates, which began from an older copy

The paper needs a bipartite graph, because in others peers could wait for each other in a circle. Here the neighbour
that is asked, the passive side, never waits, so any graph is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....aggregation.mixing.random_graphs import OneOf
from ....aggregation.mixing.topology import Topology
from .algorithm import OfModels


@dataclass(frozen=True, slots=True)
class ADPSGD(OfModels):
    """AD-PSGD on the topology that the user has chosen, or on the few links that SWIM gives each peer."""

    pairs = True
    drawn = 1

    def graph(self, topology: Topology) -> Topology:
        return OneOf(topology)
