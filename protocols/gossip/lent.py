"""Vectors of other peers that this peer reads in place, on those peers' boards (shared memory)."""

from __future__ import annotations

from dataclasses import dataclass

from ..shared_memory.board import Lent as Lent
from .periods import Told


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
