"""n-softsync: a server makes an update of every c = floor(workers / n) pushes that arrive, at least one, from whichever
workers.

Source: Zhang, Gupta, Lian & Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016, arXiv
1511.05950, equations 3 to 5: x <- x - (1 / c) sum over c pushes of (a / tau) g. The mean staleness is about n, and
hardly any push has a staleness above 2 n. With n = 1 an update takes as many pushes as there are workers; with n =
workers it takes one. tau = 0 counts as 1. At the end of the run, when no other push can come, the gathered pushes make
an update by themselves, and c is their number.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....aggregation.consistency import Consistency
from .algorithm import Algorithm, OnArrival
from .staleness_aware import weight_of


@dataclass(frozen=True, slots=True)
class SoftSync(OnArrival):
    """n-softsync. `n`: the splitting parameter of the paper, 1 or more, else ValueError: an update takes one n-th of as
    many pushes as there are workers, rounded down, at least one."""

    n: int = 1
    usual = ("async", "add")

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError("n is 1 or more")

    def under(self, consistency: Consistency) -> Algorithm:
        if consistency.own is not None:
            raise ValueError("a worker goes on before its push is in an update: with softsync consistency is async")
        return self

    def weight(self, staleness: int, workers: int) -> float:
        return weight_of(staleness)

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        return missing == 0 or gathered >= max(1, workers // self.n)

    def divisor(self, gathered: int) -> float:
        return float(gathered)
