"""The port of the parameter server's algorithms.

A worker's turn: begin from what it pulled, take `period` local steps, push. A server gathers the pushes of a range
until the gathering is `full`, and then applies

    step(values, sum of weight * pushed / divisor)

with its server function. One turn of a worker is one tick of its clock.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ....aggregation.consistency import Consistency
from ...work import Begin, Load


class Algorithm(Protocol):
    """An algorithm as functions of what a worker or a range has. It holds no state of a run, so all peers may share
    one."""

    @property
    def period(self) -> int:
        """The local steps of a turn."""
        ...

    @property
    def pulls_every(self) -> int:
        """The turns between two pulls."""
        ...

    @property
    def usual(self) -> tuple[str, str]:
        """The consistency and the server function where the user chooses none."""
        ...

    @property
    def by_steps(self) -> bool:
        """Whether a gathering is that of one step, which each worker pushes to once; else a push is gathered as it
        comes."""
        ...

    @property
    def meets(self) -> bool:
        """Whether a worker pulls right before it pushes, and not where a turn begins."""
        ...

    @property
    def warm_start(self) -> int:
        """The updates that the first worker makes before the others begin."""
        ...

    def under(self, consistency: Consistency) -> Algorithm:
        """The algorithm with this consistency. Raises ValueError when the two do not go together."""
        ...

    def weight(self, staleness: int, workers: int) -> float:
        """The weight of a push. `staleness`: updates of the range since the values that its worker had pulled;
        `workers`: how many take part."""
        ...

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        """Whether so many pushes make an update. `missing`: workers that may still add theirs."""
        ...

    def divisor(self, gathered: int) -> float:
        """What the sum of so many pushes is divided by."""
        ...

    def begin(self, pulled: Tensor, own: Tensor | None) -> Begin:
        """Where a turn begins: `pulled` [n] has just been pulled; `own` [n]: this worker's model after its last turn;
        None: it has taken none."""
        ...

    def change(self, pulled: Tensor, begun: Tensor, after: Tensor) -> Tensor:
        """The change [n] that is pushed. `pulled` [n]: as last pulled; `begun`, `after` [n]: the worker's model before
        and after the local steps of the turn."""
        ...

    def after(self, pulled: Tensor, after: Tensor, change: Tensor) -> Tensor:
        """The worker's model [n] after the turn."""
        ...


class OfChanges:
    """The common part of algorithms whose workers begin from the pulled model and push the change of their steps."""

    meets = False
    warm_start = 0

    @property
    def period(self) -> int:
        return 1

    @property
    def pulls_every(self) -> int:
        return 1

    def begin(self, pulled: Tensor, own: Tensor | None) -> Begin:
        return Load(pulled)

    def change(self, pulled: Tensor, begun: Tensor, after: Tensor) -> Tensor:
        return after - begun

    def after(self, pulled: Tensor, after: Tensor, change: Tensor) -> Tensor:
        return after


class OnArrival(OfChanges):
    """The common part of algorithms that apply each push as it arrives."""

    by_steps = False

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        return True

    def divisor(self, gathered: int) -> float:
        return 1.0
