"""Stochastic gradient push: each peer splits its vector, and a weight with it, between itself and its out-neighbours.
Its model is the sum of the vectors divided by the sum of the weights. So the graph may be directed, and peers may have
different numbers of neighbours.

Source: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019, arXiv 1811.10792, Algorithm
1, here with `period` local steps between two exchanges:

    x_i <- x_i - the local steps' updates, which begin from z_i
    x_i <- sum_j p_ij x_j,    w_i <- sum_j p_ij w_j,    z_i = x_i / w_i        p_ij = 1 / (out-degree of j + 1)

Each x_j is split into shares that sum up to it, so the sums of all x and of all w are conserved over any graph, also
where transfers break off (`shares`). The vector that a peer gives is x_i [n], followed by w_i: m = n + 1.

A statistic in the model, such as the running variance of batch norm, is no sum of updates: local steps replace a part
of it, so that x_i plus its change in z_i may be below 0 where w_i < 1. There x_i <- w_i z_i after the local steps, and
all z_i lie between those of before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...work import Update
from .algorithm import Held, Usual

_SUM = "sum"


@dataclass(frozen=True, slots=True)
class PushSum(Usual):
    """Stochastic gradient push on the topology that the user has chosen, or on the few links that SWIM gives each
    peer."""

    splits = True

    def begin(self, model: Tensor, parameters: int) -> Held:
        return Held(model, {_SUM: torch.cat((model, model.new_ones(1)))}, parameters)

    def give(self, held: Held, update: Update) -> Tensor:
        weighted, weight = held.tensors[_SUM][:-1], held.tensors[_SUM][-1:]
        given, end = update.vector + (weighted - held.model), held.parameters
        if end is not None:
            given[end:] = weight * update.vector[end:]
        return torch.cat((given, weight))

    def rest(self, held: Held) -> Tensor:
        return held.tensors[_SUM]

    def mix(self, held: Held, update: Update, given: Tensor, mixed: Tensor) -> Held:
        return Held(self.model(held, mixed), {_SUM: mixed}, held.parameters)

    def model(self, held: Held, given: Tensor) -> Tensor:
        return given[:-1] / given[-1]
