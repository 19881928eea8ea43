"""Downpour SGD: workers push their accrued gradients to servers, which apply each push at once, and pull now and then.

Source: Dean et al., "Large scale distributed deep networks", NIPS 2012, section 4.1 and Algorithm 1.1 of its appendix:

    every n_fetch steps: x <- pull;  each step: g = gradient(x), x <- x - a g, accrued += g
    every n_push steps:  push accrued, accrued <- 0

With `--server-update adagrad`, its default here, the adaptive rates live on the servers alone. The accrued gradient is
(x before - x after) / a, so the task's optimizer should be a plain SGD. `downpour:n_push:n_fetch:warm_start`: the first
worker makes `warm_start` updates before the others begin (the paper's warm start).
"""

from __future__ import annotations

from dataclasses import dataclass

from ....aggregation.consistency import Consistency
from .algorithm import Algorithm, OnArrival


@dataclass(frozen=True, slots=True)
class Downpour(OnArrival):
    """Downpour SGD: a worker pushes every `n_push` local steps and pulls every `n_fetch`. `warm_start`: the number of
    updates that the first worker makes before the others begin; 0: all begin together. Raises ValueError unless
    `n_push` is 1 or more and `n_fetch` a multiple of it."""

    n_push: int = 1
    n_fetch: int = 1
    warm_start: int = 0
    usual = ("async", "adagrad")

    def __post_init__(self) -> None:
        if self.n_push < 1 or self.n_fetch < 1 or self.n_fetch % self.n_push:
            raise ValueError("n_push is 1 or more, and n_fetch a multiple of it")

    @property
    def period(self) -> int:
        return self.n_push

    @property
    def pulls_every(self) -> int:
        return self.n_fetch // self.n_push

    def under(self, consistency: Consistency) -> Algorithm:
        if consistency.slack is None:
            return self
        if self.warm_start:
            raise ValueError("in a warm start one worker goes ahead of the others: with it consistency is async")
        if self.pulls_every > 1:
            raise ValueError(
                "a worker that does not pull waits for nobody: with n_fetch above n_push consistency is async"
            )
        return self

    def weight(self, staleness: int, workers: int) -> float:
        return 1.0
