"""The weighted mean as a plain sum, so that any allreduce can carry it.

Source: FedAvg (McMahan et al., AISTATS 2017, Algorithm 1), ``x = sum_i w_i x_i / sum_i w_i``. The weights travel inside
the sum, so the division is by the peers that really contributed: a missing peer is missing in both sums.

    message of peer i    [w_i x_i (n elements), w_i s_i (one per signal), w_i]
    sum over the peers   [sum w x,              sum w s,                  sum w]

A signal is a number that every peer must agree on (its loss, its seconds). It is averaged with the same weights, in the
vector's dtype. In float32 a total weight is exact to 2**24 and ``w x`` overflows beyond 3e38: `combine` refuses such a
sum, and `evidence` finds the peers that caused it.

Leading axes are independent rows: [..., n] contributes [..., n + signals + 1], and `means` are the means of as many
sums.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .vector import all_finite, norm_of, norms


class BadSum(ValueError):
    """Raised for a sum of contributions that has no mean, or is so large that some peer's numbers cannot be right."""


class Mean(NamedTuple):
    """The result of a round: the mean ``vector`` [n], the mean ``signals``, the total ``weight`` of all contributions,
    and the Euclidean ``norm`` of the mean as it was summed (that of the change, where changes are summed)."""

    vector: Tensor
    signals: tuple[float, ...]
    weight: float
    norm: float


class Means(NamedTuple):
    """The results of many sums at once: the fields of `Mean`, each with the leading axes of the sums."""

    vector: Tensor
    """[..., n], in the dtype of the sums."""
    signals: Tensor
    """[..., signals], float64."""
    weight: Tensor
    """[...], float64."""
    norm: Tensor
    """[...], float64."""


def contribute(
    vector: Tensor, weight: float | Tensor, signals: Sequence[float] | Tensor = (), *, out: Tensor | None = None
) -> Tensor:
    """The messages of peers that contribute ``vector`` [..., n]: [..., n + signals + 1] in its dtype, a new tensor or
    ``out``. A message is the vector and the signals, each times the weight, and then the weight. ``weight``: one number
    for all rows, or [...]; ``signals``: the same for all rows, or [..., signals].

    Weight 0 contributes exact zeros, whatever ``vector`` and ``signals`` hold: so a peer without a result, or with NaN
    in it, can still be in the sum. Raises ValueError on a weight that is negative, not finite, or too large or too
    small for a normal number of the dtype, and on a ``vector`` that is not floating.
    """
    if not vector.ndim or not vector.is_floating_point():
        raise ValueError(f"only floating vectors can be averaged, got {vector.dtype} of {tuple(vector.shape)}")
    n, range_ = vector.shape[-1], torch.finfo(vector.dtype)
    if not isinstance(weight, Tensor) and not isinstance(signals, Tensor):
        return _contribute_alike(vector, weight, signals, out)
    weights = torch.as_tensor(weight, dtype=torch.float64)
    carried = torch.as_tensor(signals, dtype=torch.float64)
    silent = weights == 0
    right = silent | (weights >= range_.tiny) & (weights <= range_.max)
    if not bool(right.all()):
        raise _bad_weight(weights[~right][0].item(), vector.dtype)
    message = vector.new_empty((*vector.shape[:-1], n + carried.shape[-1] + 1)) if out is None else out
    torch.mul(vector.detach(), _column(weights, vector.dtype), out=message[..., :n])
    message[..., n:-1] = carried * weights[..., None]
    message[..., -1] = weights
    return message.masked_fill_(silent[..., None], 0) if bool(silent.any()) else message


def _contribute_alike(vector: Tensor, weight: float, signals: Sequence[float], out: Tensor | None) -> Tensor:
    """`contribute` where all rows have the same numbers. Making a tensor of each number would take longer than summing
    a small model."""
    n, range_ = vector.shape[-1], torch.finfo(vector.dtype)
    message = vector.new_empty((*vector.shape[:-1], n + len(signals) + 1)) if out is None else out
    if weight == 0:
        return message.zero_()
    if not range_.tiny <= weight <= range_.max:
        raise _bad_weight(weight, vector.dtype)
    torch.mul(vector.detach(), weight, out=message[..., :n])
    message[..., n:] = torch.tensor([*[signal * weight for signal in signals], weight], dtype=torch.float64)
    return message


def _bad_weight(weight: float, dtype: torch.dtype) -> ValueError:
    return ValueError(f"the weight of a contribution must be finite, >= 0 and within {dtype}, got {weight}")


def _column(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """A number a row [...] as [..., 1]; one number [] stays as it is, which any dtype takes without rounding it."""
    return numbers.to(torch.promote_types(dtype, torch.float32))[..., None] if numbers.ndim else numbers


def means(totals: Tensor, signals: int = 0) -> Means:
    """The mean of each sum [..., n + signals + 1] of contributions that carry ``signals`` signals.

    Equal sums give equal bits; only norms of many rows are rounded otherwise than the norm of one. Raises BadSum if in
    any row the total weight is not positive and finite (no peer contributed) or any mean is not finite (the model or a
    signal of some peer had diverged): the round must then leave the model as it is. Raises ValueError on sums that are
    too short.
    """
    n = _elements(totals, signals)
    weights = totals[..., -1]
    right = (weights > 0) & (weights < math.inf)
    if not bool(right.all()):
        raise _no_mean(weights[~right][0].item())
    vectors = totals[..., :n] / weights[..., None]
    lengths = norms(vectors)  # one pass, which also checks that all is finite
    if not all_finite(lengths):
        _check_finite(vectors)
    weights = weights.double()
    agreed = totals[..., n:-1].double() / weights[..., None]
    if not all_finite(agreed):
        raise BadSum(f"the mean signals must be finite, got {agreed.tolist()!r:.500}")
    return Means(vectors, agreed, weights, lengths)


def combine(total: Tensor, signals: int = 0) -> Mean:
    """As `means`, but for one sum [n + signals + 1], with the signals, weight and norm as numbers: to make a tensor of
    each would take as long as all else in the round of a small model. Raises BadSum as `means` does, and ValueError on
    a sum that is no vector or too short."""
    if total.ndim != 1:
        raise ValueError(f"a sum of shape {tuple(total.shape)} is no vector and cannot carry one round's weight")
    n = _elements(total, signals)
    weight = total[-1].item()
    if not 0 < weight < math.inf:
        raise _no_mean(weight)
    vector = total[:n] / weight
    norm = norm_of(vector)  # one pass, which also checks that all is finite
    if not math.isfinite(norm):
        _check_finite(vector)
    agreed = tuple([signal / weight for signal in total[n:-1].tolist()])
    if not all(map(math.isfinite, agreed)):
        raise BadSum(f"the mean signals must be finite, got {agreed}")
    return Mean(vector, agreed, weight, norm)


def _elements(totals: Tensor, signals: int) -> int:
    """The number n of elements of the vectors in these sums."""
    n = totals.shape[-1] - signals - 1 if totals.ndim else -1
    if signals < 0 or n < 0:
        raise ValueError(f"a sum of shape {tuple(totals.shape)} cannot carry {signals} signals and a weight")
    return n


def _no_mean(weight: float) -> BadSum:
    return BadSum(f"there is no mean: {'nobody contributed' if weight == 0 else f'the total weight is {weight}'}")


def _check_finite(vectors: Tensor) -> None:
    finite = torch.isfinite(vectors)
    if not bool(finite.all()):
        bad, first = finite.numel() - int(finite.sum()), int((~finite).nonzero()[0, -1])
        raise BadSum(f"the mean has {bad} elements that are not finite, the first is {first}")
