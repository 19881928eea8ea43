"""Sums in the order of the sharded schedule, for whoever has all vectors at hand: the same bits as by messages.

The owner of a part adds to its own that of the rank before it, then of the one before that, and so on around.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .vector import parts

_BLOCK = 32 * 1024
"""Elements summed at a time: few enough to stay in the cache."""


def sum_part(vectors: Sequence[Tensor], owner: int, out: Tensor) -> None:
    """Into ``out`` (n elements), where the part of rank ``owner`` is, the sum of all ``vectors`` (n elements each), two
    or more in rank order."""
    start, stop = parts(out.numel(), len(vectors))[owner]
    terms = [vectors[(owner - distance) % len(vectors)] for distance in range(len(vectors))]
    for low in range(start, stop, _BLOCK):
        block = slice(low, min(stop, low + _BLOCK))
        torch.add(terms[0][block], terms[1][block], out=out[block])
        for term in terms[2:]:
            out[block].add_(term[block])


def sum_all(vectors: Sequence[Tensor]) -> Tensor:
    """The sum of all ``vectors``, a new one."""
    out = torch.empty_like(vectors[0])
    for owner in range(len(vectors)):
        sum_part(vectors, owner, out)
    return out
