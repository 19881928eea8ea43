"""Consistency of a parameter server: which updates a read must contain, and so which worker may go on.

One rule on vector clocks serves all models. The clock of a worker is the number of updates that it has pushed. A read
at clock c by worker p needs, in the clocks of what it reads,

    v_q >= c - slack for every other worker q that is still taking part,
    v_p >= c - own     for itself,

and may contain more. A worker takes the step after clock c when such a read is there. Sources:

- `bsp`, slack 0: bulk synchronous, Valiant 1990. A read at clock c contains the first c updates of all workers.
- `ssp:s`: stale synchronous parallel, Ho et al., NIPS 2013, section 3: a worker at clock c may go on if the slowest is
  at c - s or later, sees all updates of the clocks up to c - s - 1, and sees all of its own (read-my-writes).
- `bounded:t`: bounded delay, Li et al., OSDI 2014, section 3.4: the task k starts when all tasks up to k - t - 1 are
  done, a worker's own among them. So a worker goes on while up to t + 1 of its own updates are on their way.
- `async`: eventual consistency. A read contains whatever has arrived.

Invariant, at each moment: the clocks of two workers that take part differ by at most slack + 1, because a worker that
is at slack + 1 above the slowest has pushed the step that it began at slack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .options import made_of, whole

W = TypeVar("W")

SLACK_MAX = 1_000_000
"""The largest finite slack."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """One consistency model of a parameter server: how many updates a read at clock c may lack. `slack`: of the first c
    updates of each other worker; `own`: of the reader's own c updates. None: any number. Raises ValueError on a bound
    other than 0 to `SLACK_MAX`."""

    slack: int | None
    own: int | None

    def __post_init__(self) -> None:
        for lacking in (self.slack, self.own):
            if lacking is not None and not 0 <= lacking <= SLACK_MAX:
                raise ValueError(f"a bound is 0 to {SLACK_MAX}, got {lacking}")

    def required(self, reader: W, clock: int, workers: Iterable[W]) -> dict[W, int]:
        """The clocks that a read by `reader` at `clock` needs: by worker, the least number of its updates that the read
        must contain. A read needs no update of a worker without an entry. `workers`: those still taking part; the
        reader may be among them or not."""
        needed: dict[W, int] = {}
        if self.slack is not None and clock > self.slack:
            needed = {worker: clock - self.slack for worker in workers if worker != reader}
        if self.own is not None and clock > self.own:
            needed[reader] = clock - self.own
        return needed

    def least_resumed(self, furthest: int) -> int:
        """The least clock from which a worker of a resumed run may go on beside one that is at clock `furthest`: the
        clocks of two workers differ by at most slack + 1, and not at all where all step together. 0 where the slack is
        None."""
        if self.slack is None:
            return 0
        return furthest if self.steps_together else max(0, furthest - self.slack - 1)

    @property
    def steps_together(self) -> bool:
        """Whether no worker begins a step before all others have pushed their previous one."""
        return self.slack == 0


def lacking(clocks: Mapping[W, int], required: Mapping[W, int]) -> list[W]:
    """The workers whose clock in `clocks` is below the `required` one, in the order of `required`. A worker without a
    clock has pushed nothing. If the list is empty, the read can be answered."""
    return [worker for worker, clock in required.items() if clocks.get(worker, 0) < clock]


def spread(clocks: Iterable[int]) -> int:
    """The difference between the highest and the lowest of these clocks; 0 if there are none."""
    known = list(clocks)
    return max(known) - min(known) if known else 0


CONSISTENCIES: Mapping[str, tuple[Callable[..., Consistency], int]] = {
    "bsp": (lambda: Consistency(0, 0), 0),
    "ssp": (lambda bound="3": Consistency(whole(bound), 0), 1),
    "bounded": (lambda delay="8": Consistency(whole(delay), whole(delay)), 1),
    "async": (lambda: Consistency(None, None), 0),
}
"""Name -> a function that makes the `Consistency` from its options, which are texts, and the most options it takes."""


def parse_consistency(text: str) -> Consistency:
    """The consistency that a user asks for: ``bsp``, ``ssp:3``, ``bounded:8`` or ``async``. Raises ValueError, in one
    line, on anything else."""
    return made_of(text, CONSISTENCIES, "consistency")
