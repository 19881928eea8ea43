"""The weighted mean as a plain sum, so that any allreduce can carry it.

Source: FedAvg (McMahan et al., AISTATS 2017, Algorithm 1), ``x = sum_i w_i x_i / sum_i w_i``. The weights travel inside
the sum, so the division is by the peers that really contributed: a missing peer is missing in both sums.

    message of peer i    [w_i x_i (n elements), w_i s_i (one per signal), w_i]
    sum over the peers   [sum w x,              sum w s,                  sum w]

A signal is a number that every peer must agree on (its loss, its seconds). It is averaged with the same weights, in the
vector's dtype. In float32 a total weight is exact to 2**24 and ``w x`` overflows beyond 3e38: `combine` refuses such a
sum, and `evidence` finds the peers that caused it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .vector import norm_of


class BadSum(ValueError):
    """A sum of contributions that has no mean, or is so large that some peer's numbers cannot be right."""


class Mean(NamedTuple):
    """The agreed result of a round: the mean ``vector`` (n elements), the mean ``signals``, the total ``weight``, and
    the Euclidean ``norm`` of the mean as it was summed."""

    vector: Tensor
    signals: tuple[float, ...]
    weight: float
    norm: float


def contribute(vector: Tensor, weight: float, signals: Sequence[float] = (), *, out: Tensor | None = None) -> Tensor:
    """One peer's message: a vector of ``n + len(signals) + 1`` elements in the dtype of ``vector`` (n elements), a new
    one or ``out``.

    Weight 0 contributes exact zeros, whatever ``vector`` and ``signals`` hold: a peer without a result (or with NaN in
    it) still takes part in the sum. Raises ValueError on a weight that is negative, not finite, or beyond the dtype's
    range.
    """
    if vector.ndim != 1 or not vector.is_floating_point():
        raise ValueError(f"only a flat floating vector can be averaged, got {vector.dtype} of {tuple(vector.shape)}")
    n, range_ = vector.numel(), torch.finfo(vector.dtype)
    message = vector.new_empty(n + len(signals) + 1) if out is None else out
    if weight == 0:
        return message.zero_()
    if not range_.tiny <= weight <= range_.max:
        raise ValueError(f"the weight of a contribution must be finite, >= 0 and within {vector.dtype}, got {weight}")
    torch.mul(vector.detach(), weight, out=message[:n])
    message[n:] = torch.tensor([*(signal * weight for signal in signals), weight], dtype=torch.float64)
    return message


def combine(total: Tensor, signals: int = 0) -> Mean:
    """The mean of a sum of contributions that carry ``signals`` signals; equal sums give equal bits on every peer.

    Raises BadSum if the total weight is not positive and finite (no peer contributed) or any mean is not finite (the
    model or a signal of some peer had diverged): the round must then leave the model as it is.
    """
    n = total.numel() - signals - 1
    if total.ndim != 1 or signals < 0 or n < 0:
        raise ValueError(f"a sum of shape {tuple(total.shape)} cannot carry {signals} signals and a weight")
    weight = total[-1].item()
    if not 0 < weight < math.inf:
        reason = "nobody contributed" if weight == 0 else f"the total weight is {weight}"
        raise BadSum(f"there is no mean: {reason}")
    vector = total[:n] / weight
    norm = norm_of(vector)  # one pass, which also checks that all is finite
    if not math.isfinite(norm):
        finite = torch.isfinite(vector)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0])
            raise BadSum(f"the mean has {n - int(finite.sum())} elements that are not finite, the first is {first}")
    means = tuple(signal / weight for signal in total[n:-1].tolist())
    if not all(map(math.isfinite, means)):
        raise BadSum(f"the mean signals must be finite, got {means}")
    return Mean(vector, means, weight, norm)
