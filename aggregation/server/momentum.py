"""Heavy-ball momentum, as `torch.optim.SGD` writes it: m <- beta * m + g, x <- x - rate * m. State: m."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .function import State, Takes, check_rate, check_step


@dataclass(frozen=True, slots=True)
class Momentum:
    """The server function of SGD with heavy-ball momentum. `rate`: above 0, at most 100; `beta`: 0 or more and below
    1. Raises ValueError on others."""

    rate: float = 0.1
    beta: float = 0.9
    takes: ClassVar[Takes] = "gradient"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta is 0 or more and below 1, got {self.beta:g}")

    def start(self, values: Tensor) -> State:
        return {"momentum": torch.zeros_like(values)}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state, "momentum")
        moved = self.beta * state["momentum"] + pushed
        return values - self.rate * moved, {"momentum": moved}
