"""Epidemic learning: in each round every peer mixes its model with those of a few random others.

Source: De Vos et al., "Epidemic learning: boosting decentralized learning with randomized communication", NeurIPS 2023,
arXiv 2310.01972, Algorithm 1, here with random in-neighbours in place of random receivers: each peer mixes the same
number of models, k + 1, with equal weights. The mean of all models is left as it is in expectation only.
"""

from __future__ import annotations

from ....aggregation.mixing.random_graphs import Epidemic
from ....aggregation.mixing.topology import Topology
from .algorithm import OfModels


class EpidemicLearning(OfModels):
    """Epidemic learning: in each round a peer takes the vectors of `others` random peers, of all others where there are
    fewer. Their choice follows from the round, so all peers know it. Raises ValueError for fewer than 1."""

    own_graph = True

    def __init__(self, others: int = 2) -> None:
        self._graph, self.drawn = Epidemic(others), others

    def graph(self, topology: Topology) -> Topology:
        return self._graph
