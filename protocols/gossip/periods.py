"""The number of local steps between two mixes, which each peer decides from its own numbers and its neighbours'.

A period policy is made for numbers that are averaged over all peers. Here they are averaged over a peer and the
neighbours whose vectors it has taken in the round. So neighbours decide nearly alike, and no peer needs to hear of all
others. A policy that watches the models' motion (`PeriodPolicy.watches`) compares each peer's model with the mean of
all. Here a peer's own mix takes the place of that mean: the mean of its neighbourhood, by the weights of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from ...aggregation.periods.displacement import MotionSampler
from ...aggregation.periods.policy import STILL, Motion, Numbers, PeriodPolicy, PeriodState
from ..clock import RunClock
from ..work import Update

_LINKS_MAX = 1 << 14


class Told(NamedTuple):
    """A peer's numbers of a round: the mean loss of its local steps, the learning rate of the last, and, if the policy
    watches the motion, the fields of its `Motion`. `links`: to how many peers it gives its vector."""

    loss: float = 0.0
    learning_rate: float = 0.0
    motion: tuple[float, ...] = ()
    links: int = 0

    @property
    def makes_sense(self) -> bool:
        """Whether these are numbers, and as many as the sender can have."""
        numbers = (self.loss, self.learning_rate, *self.motion)
        return (
            all(map(math.isfinite, numbers)) and len(self.motion) in (0, len(STILL)) and 0 <= self.links <= _LINKS_MAX
        )


class Periods:
    """One peer's decisions by `policy`. `parameters`: the first so many elements of a model are parameters."""

    def __init__(self, policy: PeriodPolicy, parameters: int, clock: RunClock) -> None:
        self._policy, self._clock = policy, clock
        self._sampler = MotionSampler(parameters) if policy.watches else None
        self._exchange_s = 0.0
        """Seconds that the last exchange took."""

    @property
    def watched(self) -> bool:
        """Whether the model after half of a round's steps is needed."""
        return self._sampler is not None

    def begin(self, model: Tensor) -> None:
        """Local steps begin from `model` [n], the result of a mix."""
        if self._sampler is not None:
            self._sampler.begin(model)

    def told(self, update: Update) -> Told:
        """The numbers that this peer tells of the local steps of `update`."""
        own = Told(update.loss if math.isfinite(update.loss) else 0.0, update.learning_rate)
        if self._sampler is None:
            return own
        if update.halfway is not None:
            self._sampler.amid(update.halfway)
        motion = self._sampler.end(update.vector)
        if update.steps and self._exchange_s:
            motion = motion._replace(step_s=update.seconds / update.steps, averaging_s=self._exchange_s)
        return own._replace(motion=tuple(motion))

    def decided(self, state: PeriodState, of: Iterable[Told], exchange_s: float) -> PeriodState:
        """The policy's state after a round in which a peer and its neighbours have told `of`. `exchange_s`: seconds
        that the exchange took."""
        self._exchange_s = exchange_s
        losses, rates, motions, _ = zip(*of, strict=True)
        motion = Motion(*map(_mean, zip(*(one for one in motions if one), strict=True)))
        return self._policy.update(state, Numbers(_mean(losses), self._clock.elapsed_s, _mean(rates), motion))


def _mean(column: Iterable[float]) -> float:
    numbers = list(column)
    return sum(numbers) / len(numbers)
