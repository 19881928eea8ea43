"""Synchronous SGD: an update is the mean of all workers' pushes.

Sources: Li et al., OSDI 2014, section 2 (the parameter server with sequential consistency); with backup workers Chen et
al., "Revisiting distributed synchronous SGD", 2016, arXiv 1604.00981, Algorithms 3 and 4.

    server, step t:   x <- step(x, (1 / |W|) * sum over w in W of u_w),   W: the workers whose pushes of step t count
    worker:           pull x_t, take a local step, push u_w = x_w - x_t

`sync`: W are all workers. With another consistency than `bsp` a server cannot wait for all; it then applies each push
as it arrives, as 1/N of the mean of N workers. `backup:b`: W are the first N - b workers; pushes of the others are
dropped when they come later, and these workers go on from the newest step.

On failure: a worker that is gone is not waited for; its push of the step counts if it has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....aggregation.consistency import Consistency
from .algorithm import Algorithm, OfChanges, OnArrival


@dataclass(frozen=True, slots=True)
class Sync(OfChanges):
    """Synchronous SGD, with `backup` workers: the update of a step is the mean of the pushes that came first, and does
    not wait for those of the last `backup` workers. 0: it waits for all."""

    backup: int = 0
    usual = ("bsp", "add")
    by_steps = True

    def under(self, consistency: Consistency) -> Algorithm:
        if consistency.steps_together:
            return self
        if self.backup:
            raise ValueError("backup workers take steps together: with them consistency is bsp")
        return MeanOnArrival()

    def weight(self, staleness: int, workers: int) -> float:
        return 1.0

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        return gathered > 0 and missing <= min(self.backup, gathered + missing - 1)

    def divisor(self, gathered: int) -> float:
        return float(gathered)


@dataclass(frozen=True, slots=True)
class MeanOnArrival(OnArrival):
    """`sync` where servers do not wait for a step of all workers: each push is applied as it arrives, with the weight
    1/N."""

    usual = ("async", "add")

    def under(self, consistency: Consistency) -> Algorithm:
        return self

    def weight(self, staleness: int, workers: int) -> float:
        return 1.0 / max(1, workers)
