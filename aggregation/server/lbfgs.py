"""The server functions by which L-BFGS keeps the vectors of one range on a server (`aggregation.lbfgs`). The values are
the range of the next trial point. Workers push gradients at that point, which change the state alone. An order
(`obeyed`) changes the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..lbfgs import BASIS, Order, kept, rolled
from .function import State, Takes, check_step

_NAMES = tuple(f"basis {place:02}" for place in range(BASIS))


@dataclass(frozen=True, slots=True)
class KeepBasis:
    """The server function of a range of parameters. A push replaces the last vector of the basis by its gradient, and
    leaves the values as they are."""

    takes: ClassVar[Takes] = "gradient"

    def start(self, values: Tensor) -> State:
        zeros = {name: torch.zeros_like(values) for name in _NAMES}
        return {"x0": values.clone(), "order": _as_tensor(Order()), **zeros}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, {name: state[name] for name in _NAMES}, *_NAMES)
        return values, {**state, _NAMES[-1]: pushed.clone()}


@dataclass(frozen=True, slots=True)
class KeepLast:
    """The server function of the range that holds the loss, one element. A push replaces the values. It has no
    state."""

    takes: ClassVar[Takes] = "gradient"

    def start(self, values: Tensor) -> State:
        return {}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state)
        return pushed.clone(), {}


def gram(state: State) -> Tensor:
    """The dot products [2 m + 3, 2 m + 3] of a `KeepBasis` state's basis, in float64."""
    basis = _basis(state).double()
    return basis @ basis.T


def last_order(state: State) -> Order:
    """The last order that was applied to this `KeepBasis` state; ``Order()`` before the first."""
    return Order.from_plain(state["order"].tolist())


def obeyed(values: Tensor, state: State, order: Order) -> tuple[Tensor, State]:
    """Apply `order` to a range. `values` [n]: its trial point; `state`: that of `KeepBasis`. Returns the next trial
    point [n] and the new state; no argument is changed. For `KeepLast`, whose state is empty, both are returned as they
    are."""
    if not state:
        return values, state
    basis, x0 = _basis(state), state["x0"]
    if order.accept:
        moves = (rolled(order.tried) if order.pair else kept()).to(values.dtype)
        basis, x0 = moves @ basis, values
        direction = torch.tensor(order.direction, dtype=values.dtype) @ basis
        basis = torch.cat([basis[: BASIS - 3], direction.unsqueeze(0), basis[BASIS - 2 :]])
    after = {"x0": x0, "order": _as_tensor(order), **dict(zip(_NAMES, basis, strict=True))}
    return x0 + order.search.alpha * basis[BASIS - 3], after


def _as_tensor(order: Order) -> Tensor:
    return torch.tensor(order.to_plain(), dtype=torch.float64)


def _basis(state: State) -> Tensor:
    return torch.stack([state[name] for name in _NAMES])
