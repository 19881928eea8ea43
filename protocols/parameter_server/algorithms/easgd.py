"""Elastic averaging SGD: each worker has a model of its own, which an elastic force ties to the servers' center.

Source: Zhang, Choromanska & LeCun, "Deep learning with elastic averaging SGD", NIPS 2015, arXiv 1412.6651, Algorithm 1:

    every tau steps:  e = alpha * (x_i - center);  x_i <- x_i - e;  center <- center + e

`easgd:alpha:tau`. The center is pulled just before the push, so alpha * workers should be below 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....aggregation.consistency import Consistency
from ...work import Begin, Load
from .algorithm import Algorithm, OnArrival


@dataclass(frozen=True, slots=True)
class ElasticAveraging(OnArrival):
    """Elastic averaging: each worker has a model of its own, and the servers hold another one, the center. Every `tau`
    local steps the worker's model and the center move towards each other by the share `alpha` of their difference.
    Raises ValueError unless 0 < `alpha` < 1 and `tau` is 1 or more."""

    alpha: float = 0.1
    tau: int = 4
    usual = ("async", "add")
    meets = True

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or self.tau < 1:
            raise ValueError("alpha is between 0 and 1, and tau 1 or more")

    @property
    def period(self) -> int:
        return self.tau

    def under(self, consistency: Consistency) -> Algorithm:
        return self

    def weight(self, staleness: int, workers: int) -> float:
        return 1.0

    def begin(self, pulled: Tensor, own: Tensor | None) -> Begin:
        return Load(pulled if own is None else own)

    def change(self, pulled: Tensor, begun: Tensor, after: Tensor) -> Tensor:
        return self.alpha * (after - pulled)

    def statistics(self, pulled: Tensor, after: Tensor) -> Tensor:
        return torch.lerp(pulled, after, self.alpha)

    def after(self, pulled: Tensor, after: Tensor, change: Tensor) -> Tensor:
        return after - change
