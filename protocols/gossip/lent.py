"""Vectors of other peers that are read where they lie, on those peers' boards."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .board import Window
from .periods import Told


class Lent:
    """A vector [n] on another peer's board, which may write over it at any time."""

    def __init__(self, window: Window, slot: int, number: int) -> None:
        self._window, self._slot, self._number = window, slot, number
        self.tensor = window.tensor(slot)
        """The vector as it lies there: to be read only, and it may change."""

    @property
    def intact(self) -> bool:
        """Whether all that was read until now was this vector."""
        return self._window.holds(self._slot, self._number)

    def copied(self) -> Tensor | None:
        """A copy [n] of it; None: it is no longer there."""
        copy = self.tensor.clone()
        return copy if self.intact else None


@dataclass(frozen=True, slots=True)
class Shown:
    """A neighbour's vector of a round where it lies; see `messages.Given`."""

    round: int
    step: int
    vector: Lent
    told: Told
    last: bool

    @property
    def carried_bytes(self) -> int:
        """Bytes that a peer reads that takes it."""
        return self.vector.tensor.nbytes
