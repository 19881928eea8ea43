"""Sums of vectors that are all in this process's memory, added in the order of the sharded schedule, so that the result
has the same bits as one that is computed by messages.

The owner of a part adds to its own term the term of the rank before it, then of the one before that, and so on around.
NumPy computes the sums: it takes a quarter of PyTorch's time for small vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...aggregation.vector import Part, parts

_BLOCK = 32 * 1024
"""Elements summed at a time: few enough to stay in the cache."""
_Array = npt.NDArray[np.floating[Any]]


def sum_part(vectors: Sequence[Tensor], owner: int, out: Tensor) -> None:
    """Write the sum of all ``vectors`` (two or more, [n] each, in rank order) into ``out`` [n], only in the part that
    rank ``owner`` owns."""
    with _overflow():
        _add_up([vector.numpy() for vector in vectors], owner, parts(out.numel(), len(vectors))[owner], out.numpy())


def sum_all(vectors: Sequence[Tensor]) -> Tensor:
    """The sum [n] of all ``vectors`` (two or more, [n] each, in rank order), a new tensor."""
    arrays = [vector.numpy() for vector in vectors]
    out = np.empty_like(arrays[0])
    with _overflow():  # once for all parts: it costs as much as two additions
        for owner, part in enumerate(parts(len(out), len(vectors))):
            _add_up(arrays, owner, part, out)
    return torch.from_numpy(out)


def _overflow() -> np.errstate:
    """A context in which sums may overflow without a warning: the mean is checked for being finite later."""
    return np.errstate(over="ignore", invalid="ignore")


def _add_up(arrays: Sequence[_Array], owner: int, part: Part, out: _Array) -> None:
    first, second, *others = (arrays[owner - distance] for distance in range(len(arrays)))
    for low in range(part.start, part.stop, _BLOCK):
        block = slice(low, min(part.stop, low + _BLOCK))
        here = out[block]
        np.add(first[block], second[block], here)
        for term in others:
            np.add(here, term[block], here)
