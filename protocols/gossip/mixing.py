"""One mix: the weighted sum of a peer's own vector and those that its neighbours gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ...aggregation.vector import all_finite, norm_of
from ..collectives.bound import Bound, WrongNumbers
from ..offload import off_loop
from ..transport import PeerId


@dataclass(frozen=True, slots=True)
class Mixed:
    """Event for a simulation's checkers: what a peer has after `round` is the sum of its `own` vector [n], with the
    weight `own_weight`, and of the vectors of these rounds, by peer, with these weights."""

    round: int
    own: Tensor
    own_weight: float
    weights: Mapping[PeerId, float]
    rounds: Mapping[PeerId, int]
    vector: Tensor


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Event for a simulation's checkers: a peer goes on from the others' models of `round`."""

    round: int


async def mix(
    own: Tensor, own_weight: float, theirs: Mapping[PeerId, Tensor], weights: Mapping[PeerId, float]
) -> Tensor:
    """``own_weight own + sum_j weights_j theirs_j`` [n] in the vectors' dtype, as a new tensor."""

    def work() -> Tensor:
        mixed = own * own_weight
        for peer, vector in theirs.items():
            mixed.add_(vector, alpha=weights[peer])
        return mixed

    return await off_loop(own.nbytes * (1 + len(theirs)), work)


async def check(peer: PeerId, vector: Tensor, anchor: Tensor, bound: Bound) -> None:
    """Raises WrongNumbers when `vector` [n] of `peer` is not finite, or too large beside this peer's own `anchor`
    [n]."""

    def work() -> str:
        if not all_finite(vector):
            return "its model is not finite"
        if (norm := norm_of(vector)) > (most := bound.of(anchor)):
            return f"its model has a norm of {norm:.3g}, where {most:.3g} is the most"
        return ""

    if why := await off_loop(vector.nbytes, work):
        raise WrongNumbers(peer, why)


async def check_own(vector: Tensor) -> None:
    """Raises ValueError when this peer's own `vector` [n], which it is about to give to others, is not finite."""
    if not await off_loop(vector.nbytes, lambda: all_finite(vector)):
        broken = int((~torch.isfinite(vector)).sum())
        raise ValueError(f"{broken} numbers of the model are not finite: it has diverged")
