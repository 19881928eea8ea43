"""The counts of one round: local steps, samples and losses since the last average."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Counts:
    """`losses`: one scalar tensor for each local step, on the device. `halfway` [n]: the model after half of the steps,
    where it was asked for. `skips`: steps whose losses are not finite do not count, because a gradient scaler leaves
    them out."""

    skips: bool
    steps: int = 0
    samples: float = 0.0
    losses: list[Tensor] = field(default_factory=list)
    halfway: Tensor | None = None

    def add(self, loss: Tensor, samples: float) -> None:
        """Count one local step."""
        self.steps += 1
        self.samples += samples
        self.losses.append(loss)

    def mean_loss(self) -> float:
        """Mean loss over the local steps; 0 before the first, NaN when none counts. Only this call waits for the
        device."""
        if not self.losses:
            return 0.0
        losses = torch.stack(self.losses).double()
        if self.skips:
            losses = losses[losses.isfinite()]
        return losses.mean().item()
