"""A peer's samples of its own model: before, amid and after its local steps, and at the mean. All peers' samples
together give an estimate of the peers' motion.

A sample has at most 65,536 of the model's parameters, evenly spaced: products of that many separate drift from noise.
"""

import torch
from torch import Tensor

from .policy import STILL, Motion

_LOOKED_AT = 65_536


class Probe:
    """One peer's sampler. Call ``begin`` with the agreed model, ``amid`` halfway through the local steps, ``end`` after
    them, and ``begin`` again with the round's result, each with the model as one vector [n]."""

    def __init__(self, parameters: int | None = None) -> None:
        """`parameters`: how many elements of the vector, its first, are changed by local steps; None: all."""
        self._parameters = parameters
        self._before: tuple[Tensor, ...] = ()
        self._began: Tensor | None = None
        self._amid: Tensor | None = None
        self._end: Tensor | None = None
        self.motion = STILL
        """The motion in the last round and the one before it."""

    def begin(self, vector: Tensor) -> None:
        """To be called at the start of local steps, with the mean. The motion of a round without a start, a middle or
        an end stays unknown, as does that of the next one, which is compared with it."""
        now, began, amid, end = self._look(vector), self._began, self._amid, self._end
        ways: tuple[Tensor, ...] = ()
        if began is not None and amid is not None and end is not None:
            ways = (end - now, now - began, amid - began, end - amid)
        self.motion = STILL
        if ways and self._before:
            drift, together, early, late = (float(a @ b) for a, b in zip(ways, self._before, strict=True))
            apart = float(ways[0] @ ways[0])
            self.motion = Motion(apart=apart, drift=drift, together=together, early=early, late=late)
        self._before = ways
        self._began, self._amid, self._end = now, None, None

    def amid(self, vector: Tensor) -> None:
        self._amid = self._look(vector)

    def end(self, vector: Tensor) -> Motion:
        """To be called after the local steps; after a single step, the middle is the end. Returns the motion, which
        this round's contribution carries."""
        self._end = self._look(vector)
        self._amid = self._end if self._amid is None else self._amid
        return self.motion

    def _look(self, vector: Tensor) -> Tensor:
        moved = vector.detach()[: self._parameters]
        stride = max(1, -(-moved.numel() // _LOOKED_AT))
        return moved[::stride].to(torch.float64, copy=True)
