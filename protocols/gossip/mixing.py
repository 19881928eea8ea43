"""One mix: the weighted sum of a peer's own vector and those that its neighbours gave, which are checked on the way.

All work goes piece by piece, so that what is read once from memory is checked, added and measured in the cache. A
neighbour's piece is copied before it is checked: another process may write to where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...aggregation.vector import all_finite, norm_of
from ..collectives.bound import Bound, WrongNumbers
from ..link.link import PeerLost
from ..offload import off_loop
from ..transport import PeerId
from .lent import Lent

_PIECE = 1 << 16
"""Elements of a piece."""


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


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix `vector` [n], and how far it is from the peer's own vector, as a share of its norm."""

    vector: Tensor
    moved: float


class Overwritten(PeerLost):
    """A neighbour has written over its vector while it was read."""


async def mix(
    own: Tensor,
    own_weight: float,
    theirs: Mapping[PeerId, Tensor | Lent],
    weights: Mapping[PeerId, float],
    anchor: Tensor,
    bound: Bound,
) -> Mix:
    """``own_weight own + sum_j weights_j theirs_j`` [n] in the vectors' dtype, as a new tensor.

    Raises WrongNumbers when a vector is not finite, or too large beside this peer's own `anchor` [n]; Overwritten when
    it is no longer there.
    """

    def work() -> Mix:
        mixed, squares = torch.empty_like(own), dict.fromkeys(theirs, 0.0)
        piece = torch.empty(min(_PIECE, own.numel()), dtype=own.dtype)
        norm, moved = 0.0, 0.0
        for here in _pieces(own.numel()):
            out, before, copy = mixed[here], own[here], piece[: here.stop - here.start]
            torch.mul(before, own_weight, out=out)
            for peer, vector in theirs.items():
                if isinstance(vector, Lent):
                    np.copyto(copy.numpy(), vector.array[here])
                else:
                    copy.copy_(vector[here])
                squares[peer] += _square(copy)
                out.add_(copy, alpha=weights[peer])
            norm += _square(out)
            moved += _square(torch.sub(out, before, out=copy))
        for peer, vector in theirs.items():
            if isinstance(vector, Lent) and not vector.intact:
                raise Overwritten(peer, "it has written over its vector")
            _judge(peer, squares[peer], anchor, bound)
        least = torch.finfo(torch.float32).tiny
        return Mix(mixed, math.sqrt(moved) / max(math.sqrt(norm), least))

    return await off_loop(own.nbytes, work)


def _pieces(size: int) -> Iterator[slice]:
    return (slice(start, min(size, start + _PIECE)) for start in range(0, size, _PIECE))


def _square(piece: Tensor) -> float:
    """The squared norm of a piece [n]; NaN if an element is not finite, infinite if it is beyond float64."""
    square: float = torch.dot(piece, piece).item()
    if math.isfinite(square):
        return square
    return (norm := norm_of(piece)) * norm if all_finite(piece) else math.nan


def _judge(peer: PeerId, square: float, anchor: Tensor, bound: Bound) -> None:
    """Raises WrongNumbers for the vector of `peer`, whose squared norm this is."""
    if math.isnan(square):
        raise WrongNumbers(peer, "its model is not finite")
    if (norm := math.sqrt(square)) > bound.limit and norm > (most := bound.of(anchor)):
        raise WrongNumbers(peer, f"its model has a norm of {norm:.3g}, where {most:.3g} is the most")


async def check(peer: PeerId, vector: Tensor, anchor: Tensor, bound: Bound) -> None:
    """Raises WrongNumbers when `vector` [n] of `peer` is not finite, or too large beside this peer's own `anchor`
    [n]."""
    _judge(peer, await off_loop(vector.nbytes, lambda: _square(vector)), anchor, bound)


async def check_own(vector: Tensor) -> None:
    """Raises ValueError when this peer's own `vector` [n], which it is about to give to others, is not finite."""
    if not await off_loop(vector.nbytes, lambda: all_finite(vector)):
        raise _diverged(vector)


def copy_finite(vector: Tensor, into: Tensor) -> None:
    """Copy this peer's own `vector` [n], which it is about to show to others. Raises ValueError when it is not
    finite."""
    for here in _pieces(vector.numel()):
        if not all_finite(into[here].copy_(vector[here])):
            raise _diverged(vector)


def _diverged(vector: Tensor) -> ValueError:
    broken = int((~torch.isfinite(vector)).sum())
    return ValueError(f"{broken} numbers of the model are not finite: it has diverged")
