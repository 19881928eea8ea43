"""Adagrad: each element has a rate of its own, rate / sqrt(sum of the squares of its gradients so far).

Source: Duchi et al., JMLR 2011; Dean et al., "Large scale distributed deep networks", NIPS 2012, section 4.1, where the
state lives on the parameter server's shards alone: s <- s + g^2, x <- x - rate * g / (sqrt(s) + eps). State: s, which
begins with `first`: 0 in the paper; GloVe (Pennington et al., EMNLP 2014) begins with 1, so that first steps are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .function import State, Takes, check_rate, check_step


@dataclass(frozen=True, slots=True)
class Adagrad:
    """The server function Adagrad. `rate`: above 0, at most 100; `first`: the initial sum of squares, 0 to 1e6; `eps`:
    added to the square root of the sum. Raises ValueError on a rate or sum out of range."""

    rate: float = 0.01
    first: float = 0.0
    eps: float = 1e-10
    takes: ClassVar[Takes] = "gradient"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not 0 <= self.first <= 1e6:
            raise ValueError(f"the squares begin with 0 to 1e6, got {self.first:g}")

    def start(self, values: Tensor) -> State:
        return {"squares": torch.full_like(values, self.first)}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state, "squares")
        squares = state["squares"] + pushed * pushed
        return values - self.rate * pushed / (squares.sqrt() + self.eps), {"squares": squares}
