"""Moshpit averaging: the peers are arranged in a grid. In each round the peers of each row take the mean of their
models; the rows lie along another axis in the next round.

Source: Ryabinin et al., "Moshpit SGD: communication-efficient decentralized training on heterogeneous unreliable
devices", NeurIPS 2021, arXiv 2103.03239, Algorithm 1, here with rows that follow from the list of peers, without a
distributed hash table to find them. In a full grid of d axes, d rounds without a lost peer give the mean of all. A peer
of a row that gives nothing is left out of the row's mean. The mean of all models is conserved if all others of the row
leave out the same peers.
"""

from __future__ import annotations

from ....aggregation.mixing.grid import Grid
from ....aggregation.mixing.topology import Topology
from .algorithm import OfModels


class Moshpit(OfModels):
    """Moshpit averaging in a grid of `axes` axes. Raises ValueError on other than 1 to 16 axes."""

    own_graph = True
    in_groups = True
    drawn = 0

    def __init__(self, axes: int = 2) -> None:
        self._graph = Grid(axes)

    def graph(self, topology: Topology) -> Topology:
        return self._graph
