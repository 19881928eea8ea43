"""Writes the agreed state of local SGD to a checkpoint, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from ...aggregation.fednova import UNKNOWN_SPEEDS, Speeds
from ...aggregation.periods.policy import PeriodState
from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ..conversation import Position
from ..work import Begin, Update
from .ends import Counts
from .state import State


def position_of(state: State, residual: Tensor | None, begin: Begin | Update) -> Position:
    """The content of this peer's checkpoint at `state`. `residual` [n]: the codec's compression residual at `state`;
    None: there is none. `begin`: the instruction by which the replica continues, or the update that it has brought to a
    round under way."""
    tensors = {"state/vector": state.vector}
    if residual is not None:
        tensors["residual"] = residual
    tensors |= {f"state/outer/{index}": tensor for index, tensor in enumerate(state.outer)}
    agreed = {
        "round": state.round,
        "step": state.step,
        "period": state.period.to_plain(),
        "outer": len(state.outer),
        "links": list(state.links),
        "speeds": list(state.speeds),
        "counts": list(state.counts or ()),
        "grown": list(state.grown),
    }
    return Position(state.round, state.vector, tensors, {"state": agreed}, begin, state.grown)


def state_of(tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> tuple[State, Tensor | None]:
    """The state and the compression residual (None: there was none) from a checkpoint's tensors and numbers, as
    `position_of` wrote them."""
    agreed = numbers["state"]
    outer = tuple(tensors[f"state/outer/{index}"] for index in range(agreed["outer"]))
    period = PeriodState.from_plain(agreed["period"])
    links, speeds = LinkCosts(*agreed.get("links", UNKNOWN)), Speeds(*agreed.get("speeds", UNKNOWN_SPEEDS))
    state = State(agreed["round"], agreed["step"], tensors["state/vector"], outer, period, links, speeds)
    if counts := agreed.get("counts"):
        state = replace(state, counts=Counts(*counts))
    return replace(state, grown=tuple(agreed.get("grown", ()))), tensors.get("residual")
