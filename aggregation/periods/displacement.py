"""Displacement: a peer samples its own model before, halfway through and after its local steps, and again when the
round's mean is there. The mean over all peers' samples estimates the `Motion` by which a period policy decides. Vectors
are [..., n]: leading axes are peers as rows.

A sample has at most 65,536 of the model's parameters, evenly spaced: products of that many separate drift from noise.
"""

import torch
from torch import Tensor

from .policy import STILL, Motion

_LOOKED_AT = 65_536
PRODUCTS = 5
"""The number of products that `MotionSampler.finish` returns for each row."""


class MotionSampler:
    """The sampler of one peer, or of peers as rows. Call ``begin`` with the agreed model, ``amid`` halfway through the
    local steps, ``end`` (``finish`` for rows) after them, and ``begin`` again with the round's result, each time with
    the model as one vector [n], or the models as [..., n]."""

    def __init__(self, parameters: int | None = None) -> None:
        """`parameters`: number of elements that local steps change, the first of the vector; None: all."""
        self._parameters = parameters
        self._before: tuple[Tensor, ...] = ()
        self._began: Tensor | None = None
        self._amid: Tensor | None = None
        self._end: Tensor | None = None
        self._products: Tensor | None = None

    def begin(self, vector: Tensor) -> None:
        """Sample the agreed model ``vector``, from which local steps begin; it is the result of the round before. Where
        `end` (or `finish`) was not called in that round, its motion stays unknown, and so does that of the next round,
        which is compared with it."""
        now, began, amid, end = self._look(vector), self._began, self._amid, self._end
        ways: tuple[Tensor, ...] = ()
        if began is not None and amid is not None and end is not None:
            ways = (end - now, now - began, amid - began, end - amid)
        self._products = None
        if ways and self._before:
            pairs = [(ways[0], ways[0]), *zip(ways, self._before, strict=True)]
            self._products = torch.stack([torch.linalg.vecdot(a, b) for a, b in pairs], dim=-1)
        self._before = ways
        self._began, self._amid, self._end = now, None, None

    def amid(self, vector: Tensor) -> None:
        """Sample ``vector``, the model halfway through the local steps."""
        self._amid = self._look(vector)

    def finish(self, vector: Tensor) -> Tensor:
        """Sample ``vector``, the model after the local steps; without a call of `amid`, it counts as the middle, too.
        Returns the products that this round's contribution carries: apart, drift, together, early and late of `Motion`,
        [..., 5] float64. They are those of the round before, whose mean is known; all are 0 where unknown."""
        self._end = self._look(vector)
        self._amid = self._end if self._amid is None else self._amid
        unknown = vector.new_zeros((*vector.shape[:-1], PRODUCTS), dtype=torch.float64)
        return unknown if self._products is None else self._products

    def end(self, vector: Tensor) -> Motion:
        """`finish` for one peer's vector [n]: returns the products as a `Motion`, whose times are 0."""
        self.finish(vector)
        return self.motion

    @property
    def motion(self) -> Motion:
        """One peer's part of the `Motion` in the last completed round, from its samples of that round and the one
        before. Its times are 0. `STILL` where unknown."""
        return STILL if self._products is None else Motion(0.0, 0.0, *self._products.tolist())

    def _look(self, vector: Tensor) -> Tensor:
        moved = vector.detach()[..., : self._parameters]
        stride = max(1, -(-moved.shape[-1] // _LOOKED_AT))
        return moved[..., ::stride].to(torch.float64, copy=True)
