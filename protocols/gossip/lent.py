"""Vectors of other peers that this peer reads in place, on those peers' boards (shared memory)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .board import Window
from .periods import Told


class Lent:
    """A vector [n] on another peer's board. That peer may overwrite it at any time."""

    def __init__(self, window: Window, slot: int, number: int) -> None:
        self._window, self._slot, self._number = window, slot, number
        self.tensor = window.tensor(slot)
        """The vector in the shared memory: for reading only, and its values may change."""

    @property
    def intact(self) -> bool:
        """Whether the vector has not been overwritten, so that all that was read of it until now is valid."""
        return self._window.holds(self._slot, self._number)

    def copied(self) -> Tensor | None:
        """A copy [n] of the vector. None: it has been overwritten."""
        copy = self.tensor.clone()
        return copy if self.intact else None


@dataclass(frozen=True, slots=True)
class Shown:
    """A neighbour's vector of a round in place, on its board. The other fields are those of `messages.Given`."""

    round: int
    step: int
    vector: Lent
    told: Told
    last: bool

    @property
    def carried_bytes(self) -> int:
        """The bytes that a peer reads when it takes this vector."""
        return self.vector.tensor.nbytes
