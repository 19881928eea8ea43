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
    """A peer's own state: the number of rounds and of local steps that it has completed, the tensors of its algorithm,
    and the state of its period."""

    round: int
    step: int
    held: Held
    period: PeriodState


def saved(state: State) -> dict[str, Tensor]:
    """The tensors of `state` by their names in a checkpoint. The numbers are not among them."""
    return {_MODEL: state.held.model} | {_OTHER + name: tensor for name, tensor in state.held.tensors.items()}


def restored(tensors: Mapping[str, Tensor], round: int, step: int, period: object, *, parameters: int) -> State:
    """The state from a checkpoint: the `tensors` that `saved` wrote, with the numbers of rounds and steps, and the
    plain form of the period. `parameters`: as in `Held`. Raises ValueError on an invalid period, KeyError when the
    model is missing."""
    others = {name.removeprefix(_OTHER): tensor for name, tensor in tensors.items() if name.startswith(_OTHER)}
    return State(round, step, Held(tensors[_MODEL], others, parameters), PeriodState.from_plain(period))
