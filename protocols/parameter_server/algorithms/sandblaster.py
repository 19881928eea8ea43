"""Sandblaster L-BFGS: a batch optimizer whose vectors stay on the servers, on workers of any speed.

Source: Dean et al., "Large scale distributed deep networks", NIPS 2012, section 4.2 and Algorithm 2.1 of its appendix:

    coordinator, step t:   the trial x is on the servers; portions of the batch, many more than workers, are given to
                           workers that ask for one, and at the end again to workers that are idle (backup tasks)
    worker:                pull x, g_p = gradient of the loss over the portion p, push (g_p, loss)
    servers:               g = sum over p, the first push of each portion counts; dot products of s_i, y_i, d, g
    coordinator:           two-loop recursion and line search on the dot products; order: accept, axpy along -H g
    servers:               obey, range by range

`sandblaster:PORTIONS` for each worker of the beginning. The coordinator is the head of the first range. A step is an
evaluation of the loss, so a line search may take several. The last step leaves the best point. The loss is the sum over
all rows: the mean loss of each batch times its samples.

On failure: the vectors have as many copies as the model. Another coordinator goes on from the last order, which ranges
that lack it obey first. After a resume the servers keep the point and begin anew from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....aggregation.server.function import ServerFunction
from ....aggregation.server.lbfgs import KeepBasis
from ....aggregation.vector import all_finite
from .statistical_query import SumOfPartitions

_BEYOND = 1e30
"""The loss of a portion at a trial where it is not finite; the line search goes back from there."""


@dataclass(frozen=True, slots=True)
class Sandblaster(SumOfPartitions):
    """Sandblaster L-BFGS. `portions`: into how many portions the data is cut for each worker of the beginning, 1 to
    100, else ValueError."""

    portions: int = 10
    usual = ("bsp", "add")
    keeps = KeepBasis()
    steps = None
    of_loss = True
    coordinated = True

    def __post_init__(self) -> None:
        if not 1 <= self.portions <= 100:
            raise ValueError("portions of a worker are 1 to 100")

    def partitions(self, workers: int) -> int:
        return self.portions * workers

    def check(self, function: ServerFunction) -> None:
        if function != self.keeps:
            raise ValueError("what a push does is its own: leave it out")

    def start(self, vector: Tensor) -> Tensor:
        return torch.cat([vector, vector.new_zeros(1)])

    def push(self, sums: Tensor, n: int) -> Tensor:
        if sums.numel() != n + 1:
            raise ValueError(f"the loss of a portion has {sums.numel() - 1} gradients, due are {n}")
        if all_finite(sums):
            return sums
        return torch.cat([sums.new_zeros(n), sums.new_full((1,), _BEYOND)])

    def model(self, values: Tensor, begun: Tensor, steps: int) -> Tensor:
        return values[:-1].clone()
