"""D-PSGD: every peer takes local steps, and then mixes its model with those of its neighbours in a graph.

Source: Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017, arXiv 1705.09056,
Algorithm 1, here with `period` local steps between two mixes:

    y_i = x_i - the local steps' updates,    x_i <- sum_j W_ij y_j

W is doubly stochastic, so a mix leaves the mean of all models as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from .algorithm import OfModels


@dataclass(frozen=True, slots=True)
class DPSGD(OfModels):
    """D-PSGD on the topology that the user has chosen, or on the few links that SWIM gives each peer."""
