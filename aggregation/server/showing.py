"""Another server function, and beside its values those that readers are shown (`filters.pulls`). They are part of the
state, so all copies of a range show the same values, and a server that takes a range over goes on from the values that
its readers hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..filters.pulls import PullFilters, shown
from .function import ServerFunction, State, Takes

SHOWN = "pulls/shown"
"""The name of the shown values in a state, which no server function has."""


@dataclass(frozen=True, slots=True)
class Showing:
    """The server function `function`, with the shown values [..., n] in its state beside its own tensors. A value is
    shown anew once it differs from the shown one by more than the share `threshold` of it (`PullFilters`)."""

    function: ServerFunction
    threshold: float

    @property
    def takes(self) -> Takes:
        return self.function.takes

    def start(self, values: Tensor) -> State:
        return {**self.function.start(values), SHOWN: values.clone()}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        if SHOWN not in state:
            raise ValueError(f"the state has no values {SHOWN!r}")
        own = {name: tensor for name, tensor in state.items() if name != SHOWN}
        after, own_after = self.function.step(values, pushed, own)
        return after, {**own_after, SHOWN: shown(after, state[SHOWN], self.threshold)}


def showing(function: ServerFunction, pulls: PullFilters | None) -> ServerFunction:
    """The server function that a server with these filters of pulls uses: `Showing` if `pulls` have a threshold above
    0; else `function` itself, and readers are shown the exact values."""
    return Showing(function, pulls.threshold) if pulls is not None and pulls.threshold else function
