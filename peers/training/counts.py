"""The counts of one round: its local steps, samples and losses so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..task.model_copy import MEND, Diverged


@dataclass(slots=True)
class Counts:
    """The counts of one round on one peer. `skips`: a gradient scaler leaves out steps whose gradients are not finite,
    so `mean_loss` leaves out losses that are not finite. `steps`: all local steps, also those that were left out;
    `samples`: the sum of their batches' samples. `losses`: one scalar tensor for each step, on the device. `halfway`
    [n]: the model after half of the steps; None: it is not asked for, or not there yet."""

    skips: bool
    steps: int = 0
    samples: float = 0.0
    losses: list[Tensor] = field(default_factory=list)
    halfway: Tensor | None = None

    def add(self, loss: Tensor, samples: float) -> None:
        """Count one local step, with its `loss` (a scalar, on the device) and the number of its `samples`."""
        self.steps += 1
        self.samples += samples
        self.losses.append(loss)

    def mean_loss(self) -> float:
        """The mean of `losses`; with `skips`, of the finite ones alone. 0 before the first step; NaN if no loss is
        left. Waits for the device."""
        if not self.losses:
            return 0.0
        losses = torch.stack(self.losses).double()
        if self.skips:
            losses = losses[losses.isfinite()]
        return losses.mean().item()


def diverged(losses: list[Tensor], first: int, learning_rate: float) -> Diverged:
    """The error for the first of `losses` that is not finite. `losses`: the loss of each local step that had not been
    checked yet, one scalar tensor each; at least one must not be finite (else ValueError). `first`: the number of the
    first one's step, from 1, among all local steps of this peer in the run. `learning_rate`: for the error's text."""
    step = first + torch.stack(losses).isfinite().tolist().index(False)
    if step == 1:  # there was no earlier step that could have been too large
        return Diverged("the loss of the first batch is not finite: look into data(), model() and loss()")
    return Diverged(f"the loss is not finite any more at local step {step} (learning rate {learning_rate:g}); {MEND}")
