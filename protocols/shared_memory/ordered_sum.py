"""Sums in the order of the sharded schedule, for whoever has all vectors at hand: the same bits as by messages.

The owner of a part adds to its own that of the rank before it, then of the one before that, and so on around. By NumPy,
which takes a quarter of PyTorch's time for small ones.
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
    """Into ``out`` (n elements), where the part of rank ``owner`` is, the sum of all ``vectors`` (n elements each), two
    or more in rank order."""
    _add_up([vector.numpy() for vector in vectors], owner, parts(out.numel(), len(vectors))[owner], out.numpy())


def sum_all(vectors: Sequence[Tensor]) -> Tensor:
    """The sum of all ``vectors``, a new one."""
    arrays = [vector.numpy() for vector in vectors]
    out = np.empty_like(arrays[0])
    for owner, part in enumerate(parts(len(out), len(vectors))):
        _add_up(arrays, owner, part, out)
    return torch.from_numpy(out)


def _add_up(arrays: Sequence[_Array], owner: int, part: Part, out: _Array) -> None:
    terms = [arrays[owner - distance] for distance in range(len(arrays))]
    with np.errstate(over="ignore", invalid="ignore"):  # whoever takes the mean looks whether it is finite
        for low in range(part.start, part.stop, _BLOCK):
            block = slice(low, min(part.stop, low + _BLOCK))
            here = out[block]
            np.add(terms[0][block], terms[1][block], out=here)
            for term in terms[2:]:
                np.add(here, term[block], out=here)
