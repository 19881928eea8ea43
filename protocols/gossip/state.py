"""A peer's own state in a gossip, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ...aggregation.periods.policy import PeriodState
from .algorithms.algorithm import Held

_MODEL = "gossip/vector"
_OTHER = "gossip/own/"
"""The names in a checkpoint of the model, and of the algorithm's other tensors before their own names."""


@dataclass(frozen=True, slots=True)
class State:
    """A peer's own state: its number of rounds and of local steps, the tensors of the algorithm, and the period."""

    round: int
    step: int
    held: Held
    period: PeriodState


def saved(state: State) -> dict[str, Tensor]:
    """The tensors of a checkpoint, by name."""
    return {_MODEL: state.held.model} | {_OTHER + name: tensor for name, tensor in state.held.tensors.items()}


def restored(tensors: Mapping[str, Tensor], round: int, step: int, period: object) -> State:
    """The state of which `saved` wrote the `tensors`."""
    others = {name.removeprefix(_OTHER): tensor for name, tensor in tensors.items() if name.startswith(_OTHER)}
    return State(round, step, Held(tensors[_MODEL], others), PeriodState.from_plain(period))
