"""Adam with bias correction (Kingma & Ba, ICLR 2015, Algorithm 1).

    m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,
    x <- x - rate * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

State: m, v, and the number t of pushes so far to the vector, or to each row of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .function import State, Takes, check_rate, check_step


@dataclass(frozen=True, slots=True)
class Adam:
    """The server function Adam. `rate`: above 0, at most 100; `beta1`, `beta2`: the shares of the former means of the
    gradient and of its square that are kept, 0 or more and below 1; `eps`: added to the square root of the mean
    square. Raises ValueError on a rate or share out of range."""

    rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    takes: ClassVar[Takes] = "gradient"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= beta < 1:
                raise ValueError(f"{name} is 0 or more and below 1, got {beta:g}")

    def start(self, values: Tensor) -> State:
        zeros = torch.zeros_like(values)
        return {"mean": zeros, "square": zeros.clone(), "pushes": values.new_zeros(values.shape[:-1])}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state, "mean", "square", "pushes")
        mean = self.beta1 * state["mean"] + (1 - self.beta1) * pushed
        square = self.beta2 * state["square"] + (1 - self.beta2) * pushed * pushed
        pushes = state["pushes"] + 1
        first, second = _powers(pushes.unsqueeze(-1), self.beta1, self.beta2)
        unbiased = (square / (1 - second)).sqrt() + self.eps
        stepped = values - self.rate * (mean / (1 - first)) / unbiased
        return stepped, {"mean": mean, "square": square, "pushes": pushes}


def _powers(times: Tensor, *bases: float) -> list[Tensor]:
    """Each of `bases` to the power of each of `times`, counts of which few differ. Not by PyTorch, whose powers have
    other bits at the end of a tensor than before it: servers may update a row among different others."""
    counts, places = (times, None) if times.numel() == 1 else torch.unique(times, return_inverse=True)
    every = [max(0.0, count) for count in counts.flatten().tolist()]
    powers = [torch.tensor([base**count for count in every], dtype=times.dtype) for base in bases]
    return powers if places is None else [each[places] for each in powers]
