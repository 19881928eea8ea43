"""Computes the next state and the outcome of a round, from the round's mean and the state that all had before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...aggregation.fragments import Fragments
from ...aggregation.mean import Mean
from ...aggregation.outer import OuterStep
from ...aggregation.periods.policy import PeriodPolicy
from ...aggregation.vector import Part
from ..members.view import View
from ..meter import Meter
from ..transfer.chunks import AttemptId
from .ends import Ends
from .rounds import Contribution, Outcome, Result, told
from .state import State


@dataclass(frozen=True, slots=True)
class Results:
    """Computes results with the run's fragments, outer step, period policy and ends."""

    fragments: Fragments
    outer: OuterStep
    period: PeriodPolicy
    ends: Ends

    def of(self, before: State, steps: int, attempt: AttemptId, mean: Mean, mark: int) -> Result:
        """The result of a round with this `mean`, which follows the state `before`. `steps`: local steps since
        `before`; `mark`: the fingerprint of the sum."""
        numbers, links, speeds, counts = told(mean.signals)
        fragments = self.fragments.of_size(before.vector.numel())
        vector, outer = fragments.step(self.outer, attempt[1], before.vector, mean.vector, before.outer)
        period = self.period.update(before.period, numbers)
        ends = self.ends.counted(before.counts, counts, mean.weight, steps=steps, round=before.round)
        state = State(before.round + 1, before.step + steps, vector, outer, period, links, speeds, ends, before.grown)
        return Result(attempt, state, mean.weight, numbers.loss, numbers.elapsed_s, mark)

    @staticmethod
    def idle(before: State, attempt: AttemptId, contribution: Contribution, mark: int) -> Result:
        """The result of a round in which no contribution had a weight above 0: the state `before`, with the round's
        number grown by 1 and all else as it was. Its loss and seconds are those of this peer's own `contribution`, so
        they differ between members. `mark`: the fingerprint of the sum."""
        state = replace(before, round=before.round + 1)
        return Result(attempt, state, 0.0, contribution.loss, contribution.elapsed_s, mark)

    def outcome(
        self, contribution: Contribution, state: State, own: Result | None, view: View, meter: Meter, period: int
    ) -> Outcome:
        """The outcome for this peer of a round that led to `state`, with the seconds that `meter`, which is read first,
        has counted. `contribution`: this peer's, in the layout of `state`. `own`: the result that this peer committed
        last; if that is None or of another state, this peer has fetched `state` from another peer, and its transfer
        counts as wait. `period`: local steps of the next round; 0: the run is over."""
        meter.read()
        own = own if own is not None and own.state is state else None
        if own is None:
            meter.count_as_wait(0.0)
        whole, own_steps = state.vector, own is not None and contribution.weight > 0 and period > 0
        fragments = self.fragments.of_size(whole.numel())
        averaged = fragments.at(state.round)
        return Outcome(
            state=state,
            vector=fragments.mixed(contribution.vector, whole, state.round) if own_steps else whole,
            part=averaged if own_steps else Part(0, whole.numel()),
            loss=contribution.loss if own is None else own.loss,
            elapsed_s=contribution.elapsed_s if own is None else own.elapsed_s,
            generation=view.generation,
            members=len(view.members),
            caught_up=own is None,
            model_bytes=(averaged.stop - averaged.start) * whole.itemsize if own and len(view.members) > 1 else 0,
            waited_for=meter.waited_for,
            compute_s=meter.compute_s,
            wait_s=meter.wait_s,
            transfer_s=meter.transfer_s,
            hidden_s=meter.hidden_s,
        )
