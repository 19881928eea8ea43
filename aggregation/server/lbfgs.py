"""The keeper of one range's vectors in L-BFGS (`aggregation.lbfgs`). A push is the gradient at the trial, which is what
the values are. An order changes the values; between orders they stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..lbfgs import BASIS, Order, kept, rolled
from .function import State, Takes, check_step

_NAMES = ("x0", *(f"basis {place:02}" for place in range(BASIS)))


@dataclass(frozen=True, slots=True)
class KeepBasis:
    takes: ClassVar[Takes] = "gradient"

    def start(self, values: Tensor) -> State:
        return {"x0": values.clone(), **{name: torch.zeros_like(values) for name in _NAMES[1:]}}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        check_step(values, pushed, state, *_NAMES)
        return values, {**state, _NAMES[-1]: pushed.clone()}


def gram(state: State) -> Tensor:
    """The dot products [2 m + 3, 2 m + 3] of this range's basis, in float64."""
    basis = _basis(state).double()
    return basis @ basis.T


def obeyed(values: Tensor, state: State, order: Order, alpha: float) -> tuple[Tensor, State]:
    """The values and the state after `order`. `alpha`: of the trial that `values` are."""
    basis, x0 = _basis(state), state["x0"]
    if order.accept:
        moves = (rolled(alpha) if order.pair else kept()).to(values.dtype)
        basis, x0 = moves @ basis, values
        direction = torch.tensor(order.direction, dtype=values.dtype) @ basis
        basis = torch.cat([basis[: BASIS - 3], direction.unsqueeze(0), basis[BASIS - 2 :]])
    after = {"x0": x0, **dict(zip(_NAMES[1:], basis, strict=True))}
    return x0 + order.search.alpha * basis[BASIS - 3], after


def _basis(state: State) -> Tensor:
    return torch.stack([state[name] for name in _NAMES[1:]])
