"""The counts of one round: local steps, samples and losses since the last average."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..task.model_copy import MEND, Diverged


@dataclass(slots=True)
class Counts:
    """The counts of one round on one peer. `losses`: one scalar tensor for each local step, on the device. `halfway`
    [n]: the model after half of the steps, where it was asked for. `skips`: steps whose losses are not finite do not
    count, because a gradient scaler skips them."""

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
        """Mean loss over the local steps; 0 before the first step, NaN when no step counts. Only this call waits for
        the device."""
        if not self.losses:
            return 0.0
        losses = torch.stack(self.losses).double()
        if self.skips:
            losses = losses[losses.isfinite()]
        return losses.mean().item()


def diverged(losses: list[Tensor], first: int, learning_rate: float) -> Diverged:
    """The error for a loss that is not finite. `losses`: those that had not been checked yet; `first`: the number of
    the first one's local step."""
    step = first + torch.stack(losses).isfinite().tolist().index(False)
    if step == 1:  # there was no earlier step that could have been too large
        return Diverged("the loss of the first batch is not finite: look into data(), model() and loss()")
    return Diverged(f"the loss is not finite any more at local step {step} (learning rate {learning_rate:g}); {MEND}")
