"""Every matrix of the model as the product of two thin ones, found by one step of power iteration common to all peers.

Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization"
(NeurIPS 2019, arXiv 1905.13727), Algorithm 1, with warm start (section 4.2); Algorithm 2 is `ErrorFeedback`.

    paper    here
    M        a slot of the layout as a matrix: a tensor of more dimensions becomes [first, all others]
    n, m     rows, columns
    r        rank
    P        stage 0: mean of M Q, then orthonormal columns
    Q        stage 1: mean of M^T P; its columns, at unit length, are the state
    P Q^T    result

Vectors are averaged whole, in stage 0, and so are matrices, unless nm > 2 r (n + m).

Cost: two allreduces, of sum r n + (all elements averaged whole) and of sum r m elements, and 4 r n m operations a
matrix.

Effect on the mean: projects it on the r directions that were strongest in the last rounds, so it is biased and
needs error feedback. Projections are linear: the result is that of the mean of all peers' matrices. A peer's share is
its own matrix projected on the common P. So its residual does not contain its difference from the other peers, as it
would if the result were subtracted.

A column of P that depends on earlier ones (a matrix of lower rank, or all zeros) is left out, and its column of Q stays
unchanged: normalised, it would be noise, and a Q of zeros would stay zero for ever.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_128
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..vector import Layout, Part
from .codec import SketchState
from .sketch import Stages, check_round

RANK_MAX = 64
DEPENDENT = 1e-5
"""A column counts as dependent when less than this fraction of it remains after the earlier ones are subtracted:
float32 resolves no more."""


class Matrix(NamedTuple):
    """A tensor that is sent at low rank: ``rows`` x ``columns``, the elements ``start`` to ``stop`` of the vector,
    row-major."""

    start: int
    stop: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class PowerSGD:
    """A sketch codec with two stages. Its state is one tensor of every Q [columns, rank], row by row, one after
    another: [k] or, where each row of values [..., n] has means of its own, [..., k]. Raises ValueError on a ``rank``
    other than 1 to 64. Products of matrices, M Q and M^T P, are rounded otherwise for many rows than for one; all else
    is the same to the bit."""

    family: ClassVar[Literal["sketch"]] = "sketch"
    name: ClassVar[str] = "power_sgd"

    rank: int = 4
    """The number of columns of P and Q, 1 to 64, else ValueError."""

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= RANK_MAX:
            raise ValueError(f"PowerSGD takes a rank from 1 to {RANK_MAX}, got {self.rank}")

    def elements(self, layout: Layout) -> tuple[int, ...]:
        matrices = self.matrices(layout)
        whole = layout.size - sum(matrix.stop - matrix.start for matrix in matrices)
        return whole + self.rank * sum(matrix.rows for matrix in matrices), self._state_size(matrices)

    def start(self, layout: Layout, seed: int) -> SketchState:
        """The state before the first round: one tensor [k] on the CPU, every Q [columns, rank] row by row, in the
        layout's dtype. The elements are drawn uniformly from -1 to 1, by the seed alone. They are equal for all
        versions of torch and all devices. With one seed, a shorter state is the beginning of a longer one."""
        size = self._state_size(self.matrices(layout))
        drawn = bytearray(shake_128(f"power_sgd {seed}".encode()).digest(4 * size))
        words = torch.frombuffer(drawn, dtype=torch.int32) if size else torch.empty(0)
        return ((words.to(torch.float64) / 2**31).to(layout.dtype),)

    def begin(self, values: Tensor, layout: Layout, seed: int, state: SketchState) -> "PowerSGDRound":
        check_round(values, layout, state, tensors=1)
        matrices, (q,) = self.matrices(layout), state
        if q.shape[-1:] != (self._state_size(matrices),) or q.dtype != layout.dtype:
            got = f"{q.dtype} of shape {tuple(q.shape)}"
            raise ValueError(f"the state does not fit the layout at rank {self.rank}: {got}")
        return PowerSGDRound(values.detach(), matrices, self.rank, q.to(values.device))

    def matrices(self, layout: Layout) -> tuple[Matrix, ...]:
        """The tensors that are sent at low rank: those of two or more dimensions whose P and Q together have fewer than
        half of their elements. All others are averaged whole."""
        shaped = [
            Matrix(slot.start, slot.stop, slot.shape[0], (slot.stop - slot.start) // slot.shape[0])
            for slot in layout.slots
            if len(slot.shape) > 1 and slot.stop > slot.start
        ]
        return tuple(m for m in shaped if m.rows * m.columns > 2 * self.rank * (m.rows + m.columns))

    def _state_size(self, matrices: Sequence[Matrix]) -> int:
        return self.rank * sum(matrix.columns for matrix in matrices)


class PowerSGDRound(Stages):
    """One peer's side of one round (`codec.Sketch`). ``values`` [..., n]: what it averages; ``matrices``: the tensors
    that are sent at this ``rank``; ``q``: all matrices Q with which the round begins, as one vector, the same on every
    peer."""

    stages = 2

    def __init__(self, values: Tensor, matrices: tuple[Matrix, ...], rank: int, q: Tensor) -> None:
        super().__init__()
        self._values, self._matrices, self._rank, self._q = values, matrices, rank, q
        bounds = [0, *(bound for matrix in matrices for bound in matrix[:2]), values.shape[-1]]
        self._whole = [Part(*bounds[index : index + 2]) for index in range(0, len(bounds), 2)]
        self._bases: list[Tensor] = []

    def _projection(self, stage: int) -> Tensor:
        own = [self._values[..., m.start : m.stop].unflatten(-1, (m.rows, m.columns)) for m in self._matrices]
        if stage == 0:
            qs = self._split(self._q, [matrix.columns for matrix in self._matrices])
            thin = [m @ q for m, q in zip(own, qs, strict=True)]
            whole = [self._values[..., slice(*part)] for part in self._whole]
            return torch.cat([p.flatten(-2) for p in thin] + whole, dim=-1)
        self._bases = [orthonormal(p) for p in self._split(self._mean(0), [matrix.rows for matrix in self._matrices])]
        return torch.cat([(m.mT @ p).flatten(-2) for m, p in zip(own, self._bases, strict=True)] or [self._q], dim=-1)

    def result(self) -> Tensor:
        q = self._mean(1)
        return self._compose(q, self._mean(0))

    def own(self) -> Tensor:
        self._mean(1)
        return self._compose(self._projections[1], self._projections[0])

    def state(self) -> SketchState:
        columns = [matrix.columns for matrix in self._matrices]
        pairs = zip(self._split(self._mean(1), columns), self._split(self._q, columns), strict=True)
        return (torch.cat([_unit(new, old).flatten(-2) for new, old in pairs] or [self._q], dim=-1),)

    def _split(self, flat: Tensor, lengths: Sequence[int]) -> Iterator[Tensor]:
        start = 0
        for length in lengths:
            yield flat[..., start : start + length * self._rank].unflatten(-1, (length, self._rank))
            start += length * self._rank

    def _compose(self, q: Tensor, first: Tensor) -> Tensor:
        """The vectors [..., n] made of P Q^T of every matrix and, from the first stage, the elements that were averaged
        whole."""
        out = first.new_empty((*first.shape[:-1], self._values.shape[-1]))
        qs = self._split(q, [matrix.columns for matrix in self._matrices])
        for matrix, p, q_of in zip(self._matrices, self._bases, qs, strict=True):
            _product(p, q_of, out[..., matrix.start : matrix.stop].unflatten(-1, (matrix.rows, matrix.columns)))
        at = first.shape[-1] - sum(part.stop - part.start for part in self._whole)
        for part in self._whole:
            out[..., slice(*part)] = first[..., at : at + part.stop - part.start]
            at += part.stop - part.start
        return out


def orthonormal(p: Tensor) -> Tensor:
    """Orthonormal columns [..., n, r] that span the same space as the columns of ``p`` [..., n, r], in its dtype. A
    column that depends on earlier ones, up to `DEPENDENT`, becomes 0. Gram-Schmidt in float64, elementwise: a library's
    QR has other bits on other processors."""
    left = p.mT.to(torch.float64, memory_format=torch.contiguous_format)
    left = left / _above_zero(left.abs().amax(dim=-1, keepdim=True))
    before = _sum(left * left)
    rows: list[Tensor] = []
    for index in range(p.shape[-1]):
        row, left = left[..., :1, :], left[..., 1:, :]
        square = _sum(row * row)[..., None]
        enough = square > DEPENDENT**2 * before[..., index, None, None]
        row = torch.where(enough, row / _above_zero(square.sqrt()), 0)
        left = left - row * _sum(row * left)[..., None]
        rows.append(row[..., 0, :])
    return torch.stack(rows, dim=-1).to(p.dtype)


def _unit(new: Tensor, old: Tensor) -> Tensor:
    """The columns of ``new`` [..., m, r] at unit length; those of ``old`` where they are 0."""
    peaks = new.abs().amax(dim=-2, keepdim=True)
    scaled = new.to(torch.float64) / _above_zero(peaks)
    unit = scaled / _above_zero(_sum(scaled.mT * scaled.mT).sqrt())[..., None, :]
    return torch.where(peaks > 0, unit.to(new.dtype), old)


def _above_zero(values: Tensor) -> Tensor:
    return values.where(values > 0, 1)


def _sum(values: Tensor) -> Tensor:
    """The sum over the last dimension by adding halves: an order of additions that is the same on all devices."""
    half = 1 << (values.shape[-1] - 1).bit_length()
    values = pad(values, (0, half - values.shape[-1]))
    while half > 1:
        half //= 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _product(p: Tensor, q: Tensor, out: Tensor) -> None:
    """``out`` [..., n, m] = P Q^T, column by column, rounded after each operation, which no matrix product
    guarantees."""
    p, q = p.mT.contiguous(), q.mT.contiguous()  # strided columns would take four times as long
    torch.mul(p[..., 0, :, None], q[..., 0, None, :], out=out)
    term = torch.empty_like(out)
    for index in range(1, p.shape[-2]):
        out += torch.mul(p[..., index, :, None], q[..., index, None, :], out=term)
