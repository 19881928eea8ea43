"""Bounds on the numbers of a round: on the norm of the mean, beyond which some peer must have sent huge numbers, and on
the numbers that each single peer sends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...aggregation.mean import BadSum, Mean
from ...aggregation.schedules.schedule import Op
from ...aggregation.vector import norm_of
from ..link.link import PeerLost
from ..transport import PeerId

NORM_LIMIT = 1e6
_LEAST = 4
"""Whatever the limit, a mean's norm may be this many times the norm of the model before, or this much if that is below
1."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound on norms. `limit`: the norm of a peer's model may be at most this many times that of the model before
    its local steps, where a norm below 1 counts as 1."""

    limit: float = NORM_LIMIT

    def times(self, gain: float) -> Bound:
        """The bound for vectors that may be `gain` times as large as a model: its `limit` is `gain` times this
        one's."""
        return Bound(gain * self.limit)

    def of(self, anchor: Tensor) -> float:
        """The largest norm that a peer's model may have after the local steps from `anchor` [n]: `limit` times that of
        `anchor`, or `limit` if that norm is below 1."""
        return self.limit * max(1.0, norm_of(anchor))

    def check(self, mean: Mean, anchor: Tensor, world: int) -> None:
        """Raises BadSum if the norm of `mean` is more than max(4, `limit` / `world`) times the norm of `anchor` [n],
        the model before the local steps, where a norm below 1 counts as 1. A peer that alone exceeds `limit` among
        `world` peers with equal weights makes the mean as large as that."""
        times = max(_LEAST, self.limit / world)
        if mean.norm > times and mean.norm > (largest := times * max(1.0, norm_of(anchor))):
            raise BadSum(f"the mean of {world} peers has a norm of {mean.norm:.3g}, more than {largest:.3g}")


class WrongNumbers(PeerLost):
    """Raised when a peer has sent numbers that it cannot have computed honestly."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks every chunk that arrives during a sum by the sharded schedule, in which a part goes directly from each
    peer to the part's owner, and the sum from there to all. `brings`: by peer, the largest norm that its own
    contribution may have."""

    brings: Mapping[PeerId, float]

    def times(self, gain: float) -> Guard:
        """The guard for vectors that may be `gain` times as large as a model: each norm in `brings` is `gain` times
        this one's."""
        return Guard({peer: gain * norm for peer, norm in self.brings.items()})

    def check(self, peer: PeerId, values: npt.NDArray[np.floating[Any]], op: Op, tail: int) -> None:
        """Check the `values` [count] of a chunk from `peer`: finite, and of a norm of at most `brings` of that peer
        (`op` ADD: its own numbers), or at most the sum of `brings` of all peers (COPY: the sum of a part). `tail`: how
        many elements at the end are not of the model and do not count for the norm. Raises WrongNumbers, which names
        `peer`."""
        with np.errstate(over="ignore", invalid="ignore"):
            body = values[: len(values) - tail].astype(np.float64)
            norm = math.sqrt(body.dot(body))
            finite = bool(np.isfinite(values).all())
        most = self.brings[peer] if op is Op.ADD else sum(self.brings.values())
        what = "its own numbers" if op is Op.ADD else "the sum of the part that it owns"
        if not finite:
            raise WrongNumbers(peer, f"it sent {what}, which are not finite")
        if norm > most:
            raise WrongNumbers(peer, f"it sent {what}, with a norm of {norm:.3g}, where {most:.3g} is the most")
