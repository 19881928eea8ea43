"""A peer's pace: the number of local steps it takes in a round, and the normalisation of their result."""

from __future__ import annotations

from ...aggregation.fednova import Speeds, effective, normalised, own_steps
from ...aggregation.scaffold import ControlVariate
from ..offload import off_loop
from .rounds import Contribution, Outcome
from .state import State


class Pace:
    """The number of local steps of one peer. With `own`, the peers agree on the time of a round instead of its number
    of steps (`aggregation.fednova`). A peer measures its speed from its first round on, also after a restart; in that
    first round it takes the period's steps. Without `own`, every peer takes the period's steps."""

    def __init__(self, own: bool) -> None:
        self._own = own
        self._steps_per_s = 0.0

    def steps(self, period: int, state: State) -> int:
        """Local steps that this peer takes in a round of `period` that begins from `state`."""
        return own_steps(period, self._steps_per_s, state.speeds) if self._own else period

    def effective(self, period: int, state: State) -> float:
        """The number of local steps for which each normalised contribution to a round of `period` steps from `state`
        counts."""
        return effective(period, state.speeds) if self._own else period

    async def brought(
        self,
        contribution: Contribution,
        period: int,
        state: State,
        *,
        parameters: int | None,
        compute_s: float,
        steps: int,
    ) -> Contribution:
        """`contribution` with its displacement from `state` scaled to the effective number of steps, and its weight and
        speed set to match. Without `own`, and for a contribution without `steps`, `contribution` itself. `period`: that
        of the round; `parameters`: number of elements at the start of the vector that local steps change; None: all.
        The last `steps` local steps took `compute_s` seconds, from which the speed is measured."""
        if not self._own or not contribution.steps:
            return contribution
        if steps and compute_s > 0:
            self._steps_per_s = steps / compute_s
        speed = self._steps_per_s
        share = self.effective(period, state) / contribution.steps
        vector = await off_loop(
            state.vector.nbytes, lambda: normalised(contribution.vector, state.vector, share, parameters)
        )
        return contribution._replace(
            vector=vector,
            weight=contribution.weight * period / contribution.steps,
            speeds=Speeds(speed, 1 / speed) if speed else state.speeds,
        )


async def renew(variate: ControlVariate, brought: Contribution, outcome: Outcome, steps: float) -> None:
    """Update the control variate after a round with this `outcome`. `brought`: this peer's contribution to it; `steps`:
    the effective local steps that each contribution stood for (`Pace.effective`). Where this peer's contribution is not
    in the mean, the next round has no correction."""
    counted = not outcome.caught_up and brought.weight > 0 and brought.steps > 0
    mean = outcome.state.vector if counted else None
    await off_loop(brought.vector.nbytes, lambda: variate.begin(mean, brought.vector, steps))
