"""One mix: the weighted sum of a peer's own vector and those that its neighbours gave, which are checked on the way.

All work goes piece by piece, so that what is read once from memory is checked, added and measured in the cache.
Another process may write to where its vector lies between the check and the sum. So the sum is checked too, and if
anything is wrong with it, it is made again from copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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

_PIECE = 1 << 17
"""Elements of a piece."""
_TINY = torch.finfo(torch.float32).tiny


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

    mixed = torch.empty_like(own)  # not in the thread: the C library has memory of its own for each

    def work() -> Mix:
        found, good = _added(mixed, own, own_weight, theirs, weights, anchor, bound, copied=False)
        if not good:
            found, _ = _added(mixed, own, own_weight, theirs, weights, anchor, bound, copied=True)
        return found

    return await off_loop(own.nbytes, work)


def _added(
    mixed: Tensor,
    own: Tensor,
    own_weight: float,
    theirs: Mapping[PeerId, Tensor | Lent],
    weights: Mapping[PeerId, float],
    anchor: Tensor,
    bound: Bound,
    *,
    copied: bool,
) -> tuple[Mix, bool]:
    """Make a mix in `mixed` [n]. Also returns whether nothing is wrong with it. `copied`: each piece is copied before
    it is checked."""
    vectors = {peer: one.tensor if isinstance(one, Lent) else one for peer, one in theirs.items()}
    squares, norm, moved = dict.fromkeys(theirs, 0.0), 0.0, 0.0
    spare = torch.empty(min(_PIECE, own.numel()), dtype=own.dtype)
    for out, before, *pieces in _cut([mixed, own, *vectors.values()]):
        room = spare[: out.numel()]
        np.multiply(before.numpy(), own_weight, out=out.numpy())  # half the time of PyTorch, the same bits
        for peer, piece in zip(vectors, pieces, strict=True):
            if copied:
                piece = room.copy_(piece)
            squares[peer] += _square(piece)
            out.add_(piece, alpha=weights[peer])
        norm += _square(out)
        np.subtract(out.numpy(), before.numpy(), out=room.numpy())
        moved += _square(room)
    for peer, one in theirs.items():
        if isinstance(one, Lent) and not one.intact:
            raise Overwritten(peer, "it has written over its vector")
        _judge(peer, squares[peer], anchor, bound)
    length = math.sqrt(norm)
    return Mix(mixed, math.sqrt(moved) / max(length, _TINY)), _is_within(length, anchor, bound)


def _is_within(norm: float, anchor: Tensor, bound: Bound) -> bool:
    return norm <= bound.limit or norm <= bound.of(anchor)


def _cut(vectors: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """All these vectors, [n] each, piece by piece."""
    size = vectors[0].numel()
    if size <= _PIECE:
        yield vectors
    else:
        yield from zip(*(vector.split(_PIECE) for vector in vectors), strict=True)


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
    if not _is_within(norm := math.sqrt(square), anchor, bound):
        raise WrongNumbers(peer, f"its model has a norm of {norm:.3g}, where {bound.of(anchor):.3g} is the most")


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
    for to, piece in _cut([into, vector]):
        if not all_finite(to.copy_(piece)):
            raise _diverged(vector)


def _diverged(vector: Tensor) -> ValueError:
    broken = int((~torch.isfinite(vector)).sum())
    return ValueError(f"{broken} numbers of the model are not finite: it has diverged")
