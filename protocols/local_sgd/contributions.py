"""Contributions: makes a peer's contribution to a round from the update that its replica brings.

The displacement is normalised where each peer has its own pace (`fednova`), the corrections of drift are subtracted
(`scaffold`), and the motion is sampled where the period policy asks for it (`displacement`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from torch import Tensor

from ...aggregation.periods.displacement import MotionSampler
from ...aggregation.periods.policy import STILL
from ...aggregation.scaffold import ControlVariate
from ..work import AfterStep, Update
from .local_sgd import LocalSGD
from .options import Options
from .own_pace import Pace, renew
from .rounds import Contribution, Outcome
from .spent import Spent


class Contributions:
    """Makes one peer's contributions and has them averaged by `averaging`."""

    def __init__(self, averaging: LocalSGD, options: Options) -> None:
        self._averaging, self._options = averaging, options
        self._grown: tuple[str, ...] = ()
        """The parameters in the state from which the round began that were frozen when the run began."""
        self._pace = Pace(options.own_pace)
        self._sampler = MotionSampler(options.parameters) if averaging.watches else None
        self._variate = ControlVariate(options.parameters) if options.corrected else None
        self._averaging_s = 0.0
        """Seconds that the last average took."""
        self._news: Mapping[str, float] | None = None
        """Metrics of an evaluation by this peer that it has not told the others yet; None: there are none."""
        self.correction: AfterStep | None = None
        """Correction of the local steps of the present round; None: there is none."""

    @property
    def due(self) -> int:
        """Local steps that this peer takes in the present round: the period, or at its own pace as many as fit into the
        round's time."""
        return self._pace.steps(self._averaging.period, self._averaging.state)

    @property
    def watched(self) -> bool:
        """Whether the period policy needs a copy of the model after half of a round's local steps."""
        return self._sampler is not None

    def begin_round(self, vector: Tensor) -> None:
        """Note the model `vector` [n], in the layout of the state, from which a round begins."""
        state = self._averaging.state
        if self._sampler is not None and state.grown != self._grown:
            self._sampler = MotionSampler(self._averaging.growth.parameters(self._options.parameters, state))
        self._grown = state.grown
        if self._sampler is not None:
            self._sampler.begin(vector)

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Note the metrics of the agreed model that this peer has evaluated. Its contributions from now on tell them to
        the others, until one of these, with a weight above 0, is in a committed round."""
        self._news = metrics

    def of(self, update: Update, began_s: float, *, bystander: bool) -> Contribution:
        """The contribution made from `update`, before it is normalised. `began_s`: when the round's local steps began,
        in seconds on the run's clock. `bystander`: this peer takes no local steps in this round, so its motion is not
        sampled. A loss that was not reported (NaN) becomes 0, and so does `steps` of a replica that has ended before
        the round's last step."""
        motion = STILL
        if self._sampler is not None and not bystander and update.grown == self._grown:
            if update.halfway is not None and len(update.halfway) == len(update.vector):
                self._sampler.amid(update.halfway)
            motion = self._sampler.end(update.vector)
        return Contribution(
            update.vector if self._variate is None else self._variate.without(update.vector, update.steps),
            update.weight,
            0.0 if math.isnan(update.loss) else update.loss,
            update.learning_rate,
            began_s,
            update.filling,
            motion,
            steps=0 if update.final and update.steps < self.due else update.steps,  # not for an incomplete round
            epochs=update.epochs,
            grown=update.grown,
            base=update.base,
        )

    async def average(self, contribution: Contribution, spent: Spent) -> Outcome:
        """Average one round with all members (`LocalSGD.average`), and return its outcome. `spent`: this peer's local
        steps since its last average, and their time. Raises as that does."""
        period, before, began = self._averaging.period, self._averaging.state, asyncio.get_running_loop().time()
        before = self._averaging.growth.extended(before, contribution)
        samples, news = contribution.weight, self._news
        contribution = await self._pace.brought(
            contribution,
            period,
            before,
            parameters=self._averaging.growth.parameters(self._options.parameters, before),
            compute_s=spent.compute_s,
            steps=spent.steps,
        )
        if spent.steps and self._averaging_s:
            step_s = spent.compute_s / spent.steps
            motion = contribution.motion._replace(step_s=step_s, averaging_s=self._averaging_s)
            contribution = contribution._replace(motion=motion)
        counts = self._averaging.ends.brought(
            samples=samples, weight=contribution.weight, epochs=contribution.epochs, metrics=news
        )
        outcome = await self._averaging.average(contribution._replace(counts=counts))
        if news is self._news and contribution.weight > 0 and not outcome.caught_up:
            self._news = None
        self._averaging_s = asyncio.get_running_loop().time() - began
        if self._variate is not None:
            await renew(self._variate, contribution, outcome, self._pace.effective(period, before))
            self.correction = None if self._variate.added is None else AfterStep(self._variate.added)
        return outcome
