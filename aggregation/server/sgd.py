"""SGD: x <- x - rate * g. No state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .function import State, Takes, check_rate, check_step


@dataclass(frozen=True, slots=True)
class SGD:
    """The server function of plain SGD. `rate`: the learning rate, above 0, at most 100, else ValueError."""

    rate: float = 0.1
    takes: ClassVar[Takes] = "gradient"

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def start(self, values: Tensor) -> State:
        return {}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state)
        return values - self.rate * pushed, {}
