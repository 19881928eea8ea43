"""Add: the pushed change is added to the values, x <- x + u. No state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .function import State, Takes, check_step


@dataclass(frozen=True, slots=True)
class Add:
    """The server function that adds a pushed change, the difference of a worker's parameters, to the values."""

    takes: ClassVar[Takes] = "change"

    def start(self, values: Tensor) -> State:
        return {}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state)
        return values + pushed, {}
