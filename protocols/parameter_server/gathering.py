"""The pushes that the head of a range has gathered for its next update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...aggregation.rows import Rows
from ..transport import PeerId
from .algorithms.algorithm import Rule
from .keys import Piece
from .messages import FOREVER
from .store import Copy, Entry

Told = Callable[[], None]
"""Called when all copies of the range have a push."""


@dataclass(slots=True)
class Gathering:
    """The running sum of the pushes to one range, and the functions to call when they are applied. `total`: the
    sum; `pushes`: (worker, number) of each; `seqs`: the number of each worker's last push; `last`: the workers that
    take no more steps; `told`: the functions. It takes memory for one sum, however many workers push."""

    total: Piece | None = None
    pushes: list[tuple[PeerId, int]] = field(default_factory=list)
    seqs: dict[PeerId, int] = field(default_factory=dict)
    last: set[PeerId] = field(default_factory=set)
    told: list[Told] = field(default_factory=list)

    def add(self, worker: PeerId, seq: int, pushed: Piece, weight: float, *, last: bool) -> None:
        """Add `weight` * `pushed`, the push with number `seq` of `worker`. `last`: the worker takes no more
        steps."""
        if isinstance(pushed, Rows):
            assert self.total is None or isinstance(self.total, Rows)
            self.total = pushed.times(weight) if self.total is None else self.total.plus(pushed.times(weight))
        elif self.total is not None:
            assert not isinstance(self.total, Rows)
            self.total = self.total.add(pushed, alpha=weight)  # a first push may lie in memory of its message
        else:
            self.total = pushed if weight == 1.0 else pushed * weight
        self.pushes.append((worker, seq))
        self.seqs[worker] = seq
        if last:
            self.last.add(worker)

    def due(self, algorithm: Rule, copy: Copy) -> bool:
        """Whether the gathered pushes are enough for an update of `copy`."""
        counted = copy.counted()
        missing = [worker for worker in counted if worker not in self.seqs]
        if algorithm.by_steps:
            step = self._step(counted)
            missing = [worker for worker in missing if counted[worker] < step]
        return bool(self.pushes) and algorithm.full(len(self.pushes), len(missing), len(counted))

    def entry(self, range: int, algorithm: Rule, copy: Copy) -> Entry:
        """The entry that applies the gathered pushes to `range`. It also moves the clocks: of each worker that pushed,
        to its push; and, in an algorithm by steps, of the workers whose pushes the step goes without, to the step."""
        assert self.total is not None
        clocks = {worker: FOREVER if worker in self.last else seq for worker, seq in self.seqs.items()}
        if algorithm.by_steps:
            counted = copy.counted()
            step = self._step(counted)
            clocks |= {worker: step for worker, clock in counted.items() if clock < step and worker not in self.seqs}
        divisor = algorithm.divisor(len(self.pushes))
        return Entry(range, _over(self.total, divisor), clocks, pushes=tuple(self.pushes))

    def _step(self, counted: Mapping[PeerId, int]) -> int:
        """The number of the step whose pushes are gathered: one more than the slowest worker's clock. `counted`: the
        workers' clocks."""
        return 1 + min(counted.values(), default=min(self.seqs.values(), default=1) - 1)


def _over(total: Piece, divisor: float) -> Piece:
    if isinstance(total, Rows):
        return total.over(divisor)
    return total if divisor == 1.0 else total / divisor
