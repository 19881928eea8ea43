"""The pushes that the head of a range, the first of the servers that hold copies of it, has gathered for its next
update. A worker's clock in a range is the number of its last push."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...aggregation.rows import Rows
from ..transport import PeerId
from .algorithms.algorithm import Rule
from .keys import Keys, Piece
from .messages import FOREVER
from .pieces import joined, parted
from .store import Entry

Told = Callable[[PeerId], None]
"""A function that is called when all copies of a range have a certain push, with the pusher whose push came last to the
sum that has it; "": not known."""


@dataclass(slots=True, eq=False)
class Gathering:
    """The running sum of the pushes to `ranges`, whose copies are alike, and the functions to call when they are
    applied. `total`: the sum, of several ranges one behind the other, None before the first push; `pushes`: (worker,
    number) of each; `seqs`: the number of each worker's last push; `last`: the workers that take no more steps; `told`:
    the functions. It takes memory for one sum, however many workers push."""

    ranges: tuple[int, ...]
    total: Piece | None = None
    pushes: list[tuple[PeerId, int]] = field(default_factory=list)
    seqs: dict[PeerId, int] = field(default_factory=dict)
    last: set[PeerId] = field(default_factory=set)
    told: list[Told] = field(default_factory=list)

    def add(self, worker: PeerId, seq: int, pushed: Piece, weight: float, *, last: bool) -> None:
        """Add `weight` * `pushed`, the push with number `seq` of `worker`. `last`: the worker takes no more steps.
        `pushed` is not written to, but may be kept as the sum: it must not change any more."""
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

    @property
    def latest(self) -> PeerId:
        """The worker whose push came last; "": none has come."""
        return self.pushes[-1][0] if self.pushes else ""

    def due(self, algorithm: Rule, counted: Mapping[PeerId, int]) -> bool:
        """Whether the gathered pushes are enough for an update of the ranges' copies. `counted`: the clocks there of
        the workers that take part (`Copy.counted`)."""
        missing = [worker for worker in counted if worker not in self.seqs]
        if algorithm.by_steps:
            step = self._step(counted)
            missing = [worker for worker in missing if counted[worker] < step]
        return len(self.pushes) > 0 and algorithm.full(len(self.pushes), len(missing), len(counted))

    def entry(self, algorithm: Rule, counted: Mapping[PeerId, int]) -> Entry:
        """The entry that updates the ranges by the sum of the gathered pushes, of which there must be one at least,
        divided by the algorithm's divisor. It also sets clocks: of each worker that pushed, to the number of its push
        (FOREVER after its last); in an algorithm by steps, of the workers whose push the step did not wait for, to the
        step's number. `counted`: as for `due`."""
        assert self.total is not None
        clocks = {worker: FOREVER if worker in self.last else seq for worker, seq in self.seqs.items()}
        if algorithm.by_steps:
            step = self._step(counted)
            clocks |= {worker: step for worker, clock in counted.items() if clock < step and worker not in self.seqs}
        divisor = algorithm.divisor(len(self.pushes))
        return Entry(self.ranges, _over(self.total, divisor), clocks, pushes=tuple(self.pushes))

    def parted(self, groups: Sequence[tuple[int, ...]], keys: Keys) -> list[Gathering]:
        """Split this gathering into one for each of `groups`, which are groups of its ranges. The functions in `told`
        are called once all of the new gatherings are applied."""
        if [*groups] == [self.ranges]:
            return [self]
        pieces = () if self.total is None else parted(keys, self.ranges, self.total)
        each = dict(zip(self.ranges, pieces, strict=False))
        waiting = [after(len(groups), told) for told in self.told]
        return [
            replace(
                self,
                ranges=group,
                total=joined([each[number] for number in group]) if each else None,
                pushes=list(self.pushes), seqs=dict(self.seqs), last=set(self.last), told=list(waiting),
            )
            for group in groups
        ]  # fmt: skip

    def _step(self, counted: Mapping[PeerId, int]) -> int:
        """The number of the step whose pushes are gathered: one more than the slowest worker's clock. `counted`: the
        workers' clocks."""
        return 1 + min(counted.values(), default=min(self.seqs.values(), default=1) - 1)


def _over(total: Piece, divisor: float) -> Piece:
    if isinstance(total, Rows):
        return total.over(divisor)
    return total if divisor == 1.0 else total / divisor


def after(times: int, then: Told) -> Told:
    """A function that calls `then` once, at its own call number `times`, with the last pusher other than "" that it was
    called with; "": there was none."""
    left, last = times, ""

    def told(latest: PeerId) -> None:
        nonlocal left, last
        left, last = left - 1, latest or last
        if left == 0:
            then(last)

    return told
