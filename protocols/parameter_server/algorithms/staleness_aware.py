"""Staleness-aware asynchronous SGD: the weight of a push falls with the number of updates since its worker's pull.

Source: Zhang, Gupta, Lian & Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016, arXiv
1511.05950, equation 4: x <- x - (a / tau) g for a gradient of staleness tau > 0, and a g for tau = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....aggregation.consistency import Consistency
from .algorithm import Algorithm, OnArrival


def weight_of(staleness: int) -> float:
    """The weight of a push, by which its change is multiplied: 1 / `staleness`, and 1 for `staleness` 0."""
    return 1.0 / max(1, staleness)


@dataclass(frozen=True, slots=True)
class StalenessAware(OnArrival):
    """Staleness-aware asynchronous SGD: each push is applied as it arrives, times `weight_of` its staleness."""

    usual = ("async", "add")

    def under(self, consistency: Consistency) -> Algorithm:
        return self

    def weight(self, staleness: int, workers: int) -> float:
        return weight_of(staleness)
