"""Finds the peers that contributed numbers which cannot be right, from other peers' statements on each contribution.

The message of each of p peers (`mean`) is cut into p parts. Part r is seen by the ranks r + s mod p for the shifts s =
0, 1, ..., below `WITNESSES`: its witnesses. The median of their statements on a part counts; of two statements, the
lesser. So no single witness can incriminate an innocent peer, nor, of three, exonerate a guilty one.

    statement of a witness on a sender's part   [square of its norm, its largest magnitude, the sender's weight]

The norm is of the model's elements alone; the largest magnitude includes signals and the weight. The weight is NaN
except from the witnesses of the message's last element. The axes of statements mean peers: there are no rows here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

import torch
from torch import Tensor

WITNESSES = 3
FIELDS = 3


@dataclass(frozen=True, slots=True)
class Brought:
    """The contribution of one rank, that is its message, by its witnesses' statements. ``norm``: Euclidean norm of its
    model, which is that of the message's model elements divided by the weight; without a positive weight inf, or 0 if
    these elements are all 0. ``peak``: largest magnitude in its message; ``weight``: its weight, 0 if no witness saw
    one."""

    norm: float
    peak: float
    weight: float


def shifts(world: int) -> int:
    """The number of witnesses of each part of a message among ``world`` ranks: 3, or all of fewer ranks. The sender may
    be one of them."""
    return min(WITNESSES, world)


def brought(statements: Tensor) -> list[Brought]:
    """The contribution of each rank, in the order of ranks, from the witnesses' statements. ``statements``: [witness,
    shift, sender, `FIELDS`], float64; the witness w states at shift s what it saw of the sender's part w - s, modulo
    the number of ranks. Statements of a rank on itself do not count, nor those whose first field is NaN, which means
    that the witness saw nothing. A part without a statement that counts is taken for zeros."""
    told = statements.tolist()
    return [_of_sender(told, sender) for sender in range(len(told))]


def _of_sender(told: Sequence[Sequence[Sequence[Sequence[float]]]], sender: int) -> Brought:
    world, square, peak, weights = len(told), 0.0, 0.0, []
    for part in range(world):
        seen = [
            told[(part + shift) % world][shift][sender]
            for shift in range(shifts(world))
            if (part + shift) % world != sender
        ]
        seen = [one for one in seen if not math.isnan(one[0])]
        if seen:
            square += median_low(one[0] for one in seen)
            peak = max(peak, median_low(one[1] for one in seen))
            weights += [one[2] for one in seen if not math.isnan(one[2])]
    weight = median_low(weights) if weights else 0.0
    message = math.sqrt(square)
    norm = message / weight if weight > 0 else math.inf if message else 0.0
    return Brought(norm, peak, weight)


def guilty(all_brought: Sequence[Brought], *, norm_max: float, dtype: torch.dtype) -> dict[int, str]:
    """The ranks whose numbers cannot be right, each with the reason in words; empty: there are none. A rank with
    numbers that are not finite or a negative weight is always guilty. A rank whose numbers are merely too large is not
    if more than half of the ranks have too large ones.

    ``all_brought``: the contributions, by rank. ``norm_max``: the largest norm that a model may have. ``dtype``: that
    in which messages are summed; a message must not be so large that the sum of as many messages as there are ranks
    could overflow it.
    """
    broken, large = dict[int, str](), dict[int, str]()
    peak_max = torch.finfo(dtype).max / len(all_brought)
    for rank, one in enumerate(all_brought):
        if not math.isfinite(one.peak):
            broken[rank] = "it brought numbers that are not finite"
        elif one.weight < 0:
            broken[rank] = f"it brought the weight {one.weight:g}"
        elif one.norm > norm_max:
            large[rank] = f"it brought a model of norm {one.norm:.3g}, beyond the {norm_max:.3g} of --norm-limit"
        elif one.peak > peak_max:
            large[rank] = f"it brought {one.peak:.3g}, with which a sum leaves the range of {str(dtype)[6:]}"
    return broken if 2 * len(large) > len(all_brought) else broken | large
