"""Hogwild!: workers on one machine take SGD steps on one vector in shared memory, without locks.

Source: Niu, Recht, Re & Wright, "HOGWILD!: a lock-free approach to parallelizing stochastic gradient descent", NIPS
2011, arXiv 1106.5730, Algorithm 1:

    each worker, again and again:  sample e;  read x_e;  g = gradient of f_e at x_e;  x_v <- x_v - gamma g_v, v in e

f_e is the loss of a batch, e the elements of x that it depends on, and the step that of the task's optimizer: a plain
SGD, whose gradients should be sparse. An optimizer writes each element of a dense gradient, zeros too, over what other
workers have written there meanwhile.

`hogwild:HOW:STEPS`: a turn, after which a worker writes a record, has STEPS steps (16). HOW is `free`, or `locked` for
comparison: a worker holds one lock from reading x_e to writing it (the paper's "locking" scheme).

On failure: a worker that ends, however it ends, leaves the vector to the others, and the lock.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from ....aggregation.consistency import Consistency
from ...shared_memory.common_vector import CommonVector
from ...work import Share

NO_LOCK = nullcontext()


@dataclass(frozen=True, slots=True)
class Hogwild:
    """Hogwild!. `how`: "free", or "locked", where a worker takes each step under the memory's lock. `period`: local
    steps of a turn. Raises ValueError for another `how`, and for a period below 1."""

    how: str = "free"
    period: int = 16
    usual = ("async", "add")

    def __post_init__(self) -> None:
        if self.how not in ("free", "locked") or self.period < 1:
            raise ValueError("it is free or locked, and has turns of 1 step or more")

    def under(self, consistency: Consistency) -> Hogwild:
        if consistency.slack is not None:
            raise ValueError("a worker reads what the others have written so far: with it consistency is async")
        return self

    def share(self, memory: CommonVector) -> Share:
        return Share(memory.vector, memory if self.how == "locked" else NO_LOCK)
