"""Vectors of other peers that are read where they lie, on those peers' boards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .board import Window
from .periods import Told


class Lent:
    """A vector [n] on another peer's board, which may write over it at any time."""

    def __init__(self, window: Window, slot: int, number: int, like: Tensor) -> None:
        """`like` [n]: of the same size and dtype."""
        self._window, self._slot, self._number = window, slot, number
        self.array: npt.NDArray[Any] = window.array(slot, dtype_of(like), like.numel())

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def intact(self) -> bool:
        """Whether all that was read until now was this vector."""
        return self._window.holds(self._slot, self._number)

    def copied(self) -> Tensor | None:
        """A copy [n] of it; None: it is no longer there."""
        copy = torch.from_numpy(self.array.copy())
        return copy if self.intact else None


@dataclass(frozen=True, slots=True)
class Shown:
    """A neighbour's vector of a round where it lies; see `messages.Given`."""

    round: int
    step: int
    vector: Lent
    told: Told
    last: bool


def dtype_of(like: Tensor) -> np.dtype[Any]:
    """NumPy's name for the dtype of a tensor."""
    return torch.empty(0, dtype=like.dtype).numpy().dtype
