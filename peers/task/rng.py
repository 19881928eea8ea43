"""The random generators that a task may draw from (torch's, NumPy's and Python's), kept separate for each use: the
local steps of each peer, and each evaluation.

A process has one generator of each kind. Each use has its own states of them (`Chance`), which are swapped in when it
begins, and left as they are when another use is swapped in. So evaluations do not disturb the training, and peers that
share a process, as in a simulation, do not disturb each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor


def derive(seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose, from the run's seed: equal purposes give equal seeds, different ones unrelated
    seeds."""
    text = ":".join(str(item) for item in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True)
class _Left:
    """A saved state of the generators. `device`: the state of the CUDA device's generator; None for a peer on a CPU."""

    torch: Tensor
    device: Tensor | None
    numpy: Any
    python: Any


class Chance:
    """The states of the generators for one owner, e.g. the local steps of a peer; seeded with `seed` at the first
    `take`. `device`: the owner's, whose generator counts too if it is a GPU. The states are installed in the process
    from this owner's `take` to the next `take` of another owner."""

    _owner: ClassVar[Chance | None] = None

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed, self._device = seed, device
        self._left: _Left | None = None

    def take(self) -> None:
        """Install this owner's generators in the process, saving those of the previous owner. Does nothing if they are
        installed."""
        if Chance._owner is self:
            return
        if Chance._owner is not None:
            Chance._owner._left = Chance._owner._now()
        Chance._owner = self
        if self._left is None:
            self.begin(self._seed)
        else:
            self._restore(self._left)

    def begin(self, seed: int) -> None:
        """Seed the process's generators with `seed`. This owner's must be the installed ones (`take`)."""
        # torch.manual_seed takes a stack trace for every device that is not in use.
        torch.default_generator.manual_seed(seed)
        if self._device.type == "cuda":
            torch.cuda.init()  # CUDA's generators exist only after this
            torch.cuda.default_generators[self._device.index or 0].manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)

    def to_plain(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state for a checkpoint: tensors, and values that JSON carries. Installs this owner's generators first, as
        `take` does."""
        self.take()
        now = self._now()
        tensors = {"torch": now.torch} | ({} if now.device is None else {"device": now.device})
        kind, words, *rest = now.numpy
        return tensors, {"numpy": [kind, words.tolist(), *rest], "python": now.python}

    @classmethod
    def from_plain(cls, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], device: torch.device) -> Chance:
        """An owner whose first `take` installs the states that `to_plain` returned as `tensors` and `numbers`. If one
        of the two devices is a CPU and the other a GPU, the state of the GPU's generator is not restored."""
        chance = cls(0, device)
        kind, words, *rest = numbers["numpy"]
        (version, state, gauss) = numbers["python"]
        numpy = (kind, np.array(words, dtype=np.uint32), *rest)
        chance._left = _Left(tensors["torch"], tensors.get("device"), numpy, (version, tuple(state), gauss))
        return chance

    def _now(self) -> _Left:
        device = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None
        return _Left(torch.get_rng_state(), device, np.random.get_state(), random.getstate())

    def _restore(self, left: _Left) -> None:
        torch.set_rng_state(left.torch)
        if left.device is not None and self._device.type == "cuda":
            torch.cuda.set_rng_state(left.device, self._device)
        np.random.set_state(left.numpy)
        random.setstate(left.python)


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """While in this context, peers use this process's generators. Afterwards the generators go on as if no peer had
    drawn from them. Generators of CUDA devices are not restored."""
    owner, Chance._owner = Chance._owner, None
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        Chance._owner = owner
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])
