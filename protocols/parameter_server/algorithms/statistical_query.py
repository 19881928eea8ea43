"""Statistical queries: learning from sums over rows, by map and reduce over partitions of the data.

Source: Chu et al., "Map-reduce for machine learning on multicore", NIPS 2006, sections 3 and 4.1. Workers keep their
partitions in memory from one step to the next, as in Zaharia et al., "Resilient distributed datasets", NSDI 2012:

    map:      s_p = sum of query(row, theta) over the rows of partition p
    reduce:   S = sum over p of s_p, on the servers, range by range

`statistical_query:normal:ridge`, for linear models. One step, which is exact:

    query: (x x^T, x y);   theta = (A + ridge I)^-1 b with S = (A, b)

`statistical_query:descent`, for any sum of gradients, such as logistic regression's (h(x) - y) x. In each step

    query: the gradient at theta;   theta <- step(theta, S) with the server function: for sgd theta - rate * S

On failure: a partition of a worker that is gone is mapped by another one, and counts once whoever has mapped it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from ....aggregation.consistency import Consistency
from ....aggregation.normal_equations import packed, size_of, solution, unpacked
from ....aggregation.options import number
from ....aggregation.server.function import ServerFunction


@dataclass(frozen=True, slots=True)
class SumOfPartitions:
    """Base class of the algorithms whose servers make one update in each step, from the sum of one push for each
    partition."""

    period = 1
    by_steps = True
    keeps: ClassVar[ServerFunction | None] = None
    of_loss = False
    coordinated = False

    def under(self, consistency: Consistency) -> Self:
        if not consistency.steps_together:
            raise ValueError("a step sums all partitions of the data: consistency is bsp")
        return self

    def weight(self, staleness: int, workers: int) -> float:
        return 1.0

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        return missing == 0

    def divisor(self, gathered: int) -> float:
        return 1.0

    def partitions(self, workers: int) -> int:
        return workers


@dataclass(frozen=True, slots=True)
class NormalEquations(SumOfPartitions):
    """Least squares in one step, by normal equations. `ridge`: added to the diagonal of A, 0 or more and finite, else
    ValueError."""

    ridge: float = 0.0
    usual = ("bsp", "add")
    steps = 1

    def __post_init__(self) -> None:
        if not 0 <= self.ridge < math.inf:
            raise ValueError("ridge is 0 or more")

    def check(self, function: ServerFunction) -> None:
        if function.takes != "change":
            raise ValueError("normal equations are sums: with statistical_query:normal it is add")

    def start(self, vector: Tensor) -> Tensor:
        return vector.new_zeros(size_of(vector.numel()))

    def push(self, sums: Tensor, n: int) -> Tensor:
        if sums.numel() != n * n + n:
            due = f"the sums of x x^T [{n}, {n}] and x y [{n}] for a model of {n} parameters"
            raise ValueError(f"query() returned {sums.numel()} numbers, but must return {due}")
        return packed(sums[: n * n].view(n, n), sums[n * n :])

    def model(self, values: Tensor, begun: Tensor, steps: int) -> Tensor:
        return solution(*unpacked(values, begun.numel()), self.ridge) if steps else begun


@dataclass(frozen=True, slots=True)
class Descent(SumOfPartitions):
    """Gradient descent by the sum of all partitions' gradients in each step."""

    usual = ("bsp", "sgd:0.1")
    steps = None

    def check(self, function: ServerFunction) -> None:
        if function.takes != "gradient":
            raise ValueError("its pushes are gradients: with statistical_query:descent it is sgd, or another of them")

    def start(self, vector: Tensor) -> Tensor:
        return vector

    def push(self, sums: Tensor, n: int) -> Tensor:
        if sums.numel() != n:
            due = f"a gradient of {n}, one for each parameter"
            raise ValueError(f"query() returned {sums.numel()} numbers, but must return {due}")
        return sums

    def model(self, values: Tensor, begun: Tensor, steps: int) -> Tensor:
        return values


def query_of(kind: str = "normal", ridge: str = "0") -> NormalEquations | Descent:
    """The algorithm of a `kind` of query, "normal" or "descent", from its options as texts. Raises ValueError for
    another kind, for a ridge that is no finite number from 0 on, and for one other than "0" with "descent"."""
    if kind == "normal":
        return NormalEquations(number(ridge))
    if kind == "descent" and ridge == "0":
        return Descent()
    raise ValueError("it is normal, normal:RIDGE or descent")
