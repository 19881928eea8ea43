"""Vectors of other peers that this peer reads in place, on those peers' boards (shared memory)."""

from __future__ import annotations

from dataclasses import dataclass

from ..shared_memory.board import Lent as Lent
from .periods import Told


@dataclass(frozen=True, slots=True)
class Shown:
    """A neighbour's vector of a round in place, on its board. `step`: the local steps that led to it; `told`: the
    numbers that the neighbour tells with it; `last`: the neighbour takes no more steps, so that this vector stands for
    all later rounds too."""

    round: int
    step: int
    vector: Lent
    told: Told
    last: bool

    @property
    def carried_bytes(self) -> int:
        """The bytes that a peer reads when it takes this vector."""
        return self.vector.tensor.nbytes
