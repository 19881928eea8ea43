"""Gradient tracking: local steps are corrected towards the mean step of all peers, so that peers with different data
do not drift apart.

Source: Liu et al., "Decentralized gradient tracking with local steps" (K-GT), arXiv 2301.01313, Algorithm 1, with a
global step of 1:

    y_i <- y_i - eta (g_i(y_i) + c_i)          K times, from y_i = x_i
    z_i = (x_i - y_i) / (K eta)
    c_i <- c_i - z_i + sum_j W_ij z_j
    x_i <- sum_j W_ij y_j

    paper       here
    -eta c_i    `correction` [p], added to the p parameters after each local step
    -eta z_i    the mean displacement of a local step [p], given to neighbours beside y_i

The c_i begin at 0 and sum to 0 as long as W is doubly stochastic. A neighbour that gives nothing in a round changes
that sum by its weight times the difference of two z. Displacements take the place of gradients, so no learning rate is
needed, and the effect of momentum is included (as in `aggregation.scaffold`).
Cost: twice the bytes of D-PSGD.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...work import AfterStep, Correction, Update
from .algorithm import Held, Usual

_CORRECTION, _STEP = "correction", "step"


@dataclass(frozen=True, slots=True)
class GradientTracking(Usual):
    """Gradient tracking on the topology that the user has chosen, or on the few links that SWIM gives each peer. The
    vector that a peer gives is y_i [n], followed by the mean step [p]: m = n + p."""

    def begin(self, model: Tensor, parameters: int) -> Held:
        zero = torch.zeros(parameters, dtype=model.dtype)
        return Held(model, {_CORRECTION: zero, _STEP: zero})

    def correction(self, held: Held) -> Correction | None:
        return AfterStep(held.tensors[_CORRECTION])

    def give(self, held: Held, update: Update) -> Tensor:
        parameters = held.tensors[_CORRECTION].numel()
        moved = (update.vector - held.model)[:parameters]
        return torch.cat((update.vector, moved / max(1, update.steps)))

    def rest(self, held: Held) -> Tensor:
        return torch.cat((held.model, held.tensors[_STEP]))

    def mix(self, held: Held, update: Update, given: Tensor, mixed: Tensor) -> Held:
        size = held.model.numel()
        step = mixed[size:].clone()
        return Held(mixed[:size].clone(), {_CORRECTION: held.tensors[_CORRECTION] - given[size:] + step, _STEP: step})

    def model(self, held: Held, given: Tensor) -> Tensor:
        return given[: held.model.numel()]
