"""A peer's pace: how many local steps it takes in a round, and what it brings of them."""

from __future__ import annotations

from dataclasses import replace

from ...aggregation.fednova import Speeds, effective, normalised, own_steps
from ...aggregation.scaffold import ControlVariate
from ...protocols.local_sgd.rounds import Contribution, Outcome
from ...protocols.local_sgd.state import State
from ...protocols.offload import off_loop


class Pace:
    """`own`: the time of a round is agreed on, not the number of steps (`aggregation.fednova`). How fast this peer
    is counts from its first round on, also when it is started anew: that one is of equal steps."""

    def __init__(self, own: bool, parameters: int | None) -> None:
        """`parameters`: elements of the vector, its first, that steps move; None: all."""
        self._own, self._parameters = own, parameters
        self._steps_per_s = 0.0

    def steps(self, period: int, state: State) -> int:
        """Local steps until this peer averages, in a round of `period` that begins from `state`."""
        return own_steps(period, self._steps_per_s, state.speeds) if self._own else period

    def effective(self, period: int, state: State) -> float:
        """How many steps what each brings stands for, in that round."""
        return effective(period, state.speeds) if self._own else period

    async def brought(
        self, contribution: Contribution, period: int, state: State, *, compute_s: float, steps: int
    ) -> Contribution:
        """What counts of `contribution`, whose last `steps` steps took `compute_s`."""
        if not self._own or not contribution.steps:
            return contribution
        if steps and compute_s > 0:
            self._steps_per_s = steps / compute_s
        speed = self._steps_per_s
        share = self.effective(period, state) / contribution.steps
        vector = await off_loop(
            state.vector.nbytes, lambda: normalised(contribution.vector, state.vector, share, self._parameters)
        )
        return replace(
            contribution,
            vector=vector,
            weight=contribution.weight * period / contribution.steps,
            speeds=Speeds(speed, 1 / speed) if speed else state.speeds,
        )


async def renew(variate: ControlVariate, brought: Contribution, outcome: Outcome, steps: float) -> None:
    """What is added to the next local steps, after a round in which what was brought stood for so many."""
    counted = not outcome.caught_up and brought.weight > 0 and brought.steps > 0
    mean = outcome.state.vector if counted else None
    await off_loop(brought.vector.nbytes, lambda: variate.begin(mean, brought.vector, steps))
