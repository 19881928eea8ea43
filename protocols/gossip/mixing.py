"""One mix: the weighted sum of a peer's own vector and those that its neighbours gave, with a check of these.

The vectors are processed in pieces that fit into the cache, so each is read from memory once. First only the sum is
checked. If it is not finite, or its norm is so large that one of the vectors may be too large, the sum is made again,
and each vector is checked. It is then made from copies, because another process may overwrite a vector in shared memory
between check and use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...aggregation.vector import all_finite, norm_of
from ..collectives.bound import Bound, WrongNumbers
from ..link.link import PeerLost
from ..offload import off_loop
from ..transport import PeerId
from .lent import Lent

_PIECE = 1 << 18
"""Elements of a piece."""
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class Mixed:
    """Event for a simulation's checkers: after `round` a peer has `vector` [n], the sum of its `own` vector [n] times
    `own_weight` and of other peers' vectors times their weights. `weights`, `rounds`: by peer, the weight and the round
    of its vector."""

    round: int
    own: Tensor
    own_weight: float
    weights: Mapping[PeerId, float]
    rounds: Mapping[PeerId, int]
    vector: Tensor


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Event for a simulation's checkers: a peer has replaced its model by the mean of its neighbours' models, or by
    that of one of them, and counts `round` rounds now."""

    round: int


@dataclass(frozen=True, slots=True)
class Mix:
    """The result of a mix. `vector` [n]: the weighted sum. `moved`: its Euclidean distance from the peer's own vector,
    divided by the norm of that vector."""

    vector: Tensor
    moved: float


class Overwritten(PeerLost):
    """Raised when a neighbour has overwritten its vector on its board while this peer was reading it."""


class Own(NamedTuple):
    """This peer's own vector [n], known to be finite, and its Euclidean norm."""

    vector: Tensor
    norm: float


@dataclass(frozen=True, slots=True)
class Summands:
    """The vectors of a mix, [n] each, with their weights: this peer's `own`, and `theirs` by neighbour."""

    own: Own
    own_weight: float
    theirs: Mapping[PeerId, Tensor | Lent]
    weights: Mapping[PeerId, float]


async def mix(of: Summands, anchor: Tensor, bound: Bound) -> Mix:
    """The weighted sum ``own_weight own + sum_j weights_j theirs_j`` [n] in the vectors' dtype, as a new tensor.

    Raises WrongNumbers, which names one neighbour, when its vector is not finite, or its norm is above
    ``bound.of(anchor)``, with `anchor` [n] this peer's own model; vectors too large that cancel each other in the sum
    pass. Raises Overwritten when a vector is no longer on the neighbour's board.
    """
    mixed = torch.empty_like(of.own.vector)  # not in the thread: the C library has memory of its own for each

    def work() -> Mix:
        moved = _added(mixed, of, None)
        if not _is_within(of.own.norm + moved, anchor, bound, share=min(of.weights.values(), default=1.0) / 2):
            squares = dict.fromkeys(of.theirs, 0.0)
            moved = _added(mixed, of, squares)
            _judge_all(squares, anchor, bound)
        for peer, one in of.theirs.items():
            if isinstance(one, Lent) and not one.intact:
                raise Overwritten(peer, "it has written over its vector")
        return Mix(mixed, moved / max(of.own.norm, _TINY))

    return await off_loop(mixed.nbytes, work)


def _added(mixed: Tensor, of: Summands, squares: dict[PeerId, float] | None) -> float:
    """Make a mix in `mixed` [n]. Returns its distance from the own vector, which is not finite if any vector is not.
    `squares`: each piece of another peer's vector is copied, and added to that peer's squared norm here; None: it is
    used where it lies."""
    vectors = {peer: one.tensor if isinstance(one, Lent) else one for peer, one in of.theirs.items()}
    moved, spare = 0.0, torch.empty(min(_PIECE, mixed.numel()), dtype=mixed.dtype)
    for out, before, *pieces in _cut([mixed, of.own.vector, *vectors.values()]):
        room, old, new = spare[: out.numel()], before.numpy(), out.numpy()
        np.multiply(old, of.own_weight, out=new)  # half the time of PyTorch, the same bits
        for peer, piece in zip(vectors, pieces, strict=True):
            if squares is not None:
                piece = room.copy_(piece)
                squares[peer] += _square(piece)
            out.add_(piece, alpha=of.weights[peer])
        np.subtract(new, old, out=room.numpy())
        moved += _square(room)
    return math.sqrt(moved)


def _is_within(norm: float, anchor: Tensor, bound: Bound, share: float = 1.0) -> bool:
    """Whether a norm is within that share of the bound. False for NaN."""
    return norm <= share * bound.limit or norm <= share * bound.of(anchor)


def _cut(vectors: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """All these vectors, [n] each, piece by piece."""
    size = vectors[0].numel()
    if size <= _PIECE:
        yield vectors
    else:
        yield from zip(*(vector.split(_PIECE) for vector in vectors), strict=True)


def _square(piece: Tensor) -> float:
    """The squared norm of a piece [n]; NaN if an element is not finite, infinite if it is beyond float64."""
    if not piece.is_floating_point():
        piece = piece.double()
    square: float = torch.dot(piece, piece).item()
    if math.isfinite(square):
        return square
    return (norm := norm_of(piece)) * norm if all_finite(piece) else math.nan


def _judge_all(squares: Mapping[PeerId, float], anchor: Tensor, bound: Bound) -> None:
    """Raises WrongNumbers for a vector with such a squared norm, by peer, that it cannot be."""
    for peer, square in squares.items():
        if math.isnan(square):
            raise WrongNumbers(peer, "its model is not finite")
        if not _is_within(norm := math.sqrt(square), anchor, bound):
            raise WrongNumbers(peer, f"its model has a norm of {norm:.3g}, where {bound.of(anchor):.3g} is the most")


async def check(peer: PeerId, vector: Tensor, anchor: Tensor, bound: Bound) -> None:
    """Raises WrongNumbers when the `vector` [n] of `peer` is not finite, or its norm is above ``bound.of(anchor)``,
    with `anchor` [n] this peer's own model. Reads more than 1 MiB in a thread."""
    _judge_all({peer: await off_loop(vector.nbytes, lambda: _square(vector))}, anchor, bound)


def distance(one: Tensor, other: Tensor) -> float:
    """The Euclidean distance of two vectors [n] of one dtype, computed piece by piece."""
    return math.sqrt(sum(_square(here - there) for here, there in _cut([one, other])))


async def own(vector: Tensor) -> Own:
    """This peer's own `vector` [n] for a mix, with its Euclidean norm. Raises ValueError when an element is not finite.
    The vector is not copied: nobody may write to it while the result is in use. Reads more than 1 MiB in a thread."""
    return Own(vector, _finite(await off_loop(vector.nbytes, lambda: _square(vector)), vector))


def copied_own(vector: Tensor, into: Tensor) -> float:
    """Copy this peer's own `vector` [n] to `into` [n], on its board. Returns its Euclidean norm. Raises ValueError
    when it is not finite; it is copied all the same."""
    return _finite(sum(_square(to.copy_(piece)) for to, piece in _cut([into, vector])), vector)


def _finite(square: float, vector: Tensor) -> float:
    if math.isnan(square):
        broken = int((~torch.isfinite(vector)).sum())
        raise ValueError(f"{broken} numbers of the model are not finite: it has diverged")
    return math.sqrt(square)
