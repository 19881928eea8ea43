"""What a peer brings to a round of averaging, and what comes out of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregation.vector import all_finite
from .state import State


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a peer brings to a round: its model after the local steps [n], the samples it saw as weight (0: nothing,
    I only follow), its mean loss, its learning rate, and the seconds it has trained since the run began."""

    vector: Tensor
    weight: float
    loss: float
    learning_rate: float
    elapsed_s: float

    def check(self) -> None:
        """Raises ValueError when anything that counts is not finite."""
        if self.weight == 0:
            return
        if not all_finite(self.vector):
            broken = int((~torch.isfinite(self.vector)).sum())
            raise ValueError(f"{broken} of {self.vector.numel()} elements of the model are not finite: it has diverged")
        for name in ("weight", "loss", "learning_rate", "elapsed_s"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"a contribution needs a finite {name}, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round that is over, with the agreed mean loss and training time. `caught_up`: this peer did not average but
    took the result from another; then loss and time are its own."""

    state: State
    loss: float
    elapsed_s: float
    generation: int
    members: int
    caught_up: bool
    wait_s: float
    transfer_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """What a peer has computed in a round and not committed yet. `fingerprint`: of the sum it came from."""

    state: State
    loss: float
    elapsed_s: float
    fingerprint: int
