"""The number of local steps between two mixes, which each peer decides from its own numbers and its neighbours'.

A period policy is made for numbers that are averaged over all peers. Here they are averaged over a peer and the
neighbours whose vectors it has taken in the round. So neighbours decide nearly alike, and no peer needs to hear of all
others. A policy that uses the models' motion (`PeriodPolicy.watches`) compares each peer's model with the mean of all.
Here a peer's own mix, the weighted mean of its neighbourhood, is used instead of that mean.
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
    """The numbers that a peer tells its neighbours with its vector of a round: the mean loss of its local steps, the
    learning rate of the last of them, and, if the policy uses it, the fields of its `Motion` (else none). `links`: the
    number of peers that take its vector."""

    loss: float = 0.0
    learning_rate: float = 0.0
    motion: tuple[float, ...] = ()
    links: int = 0

    @property
    def makes_sense(self) -> bool:
        """Whether all numbers are finite, the motion has all of its fields or none, and `links` is in its range. An
        honest peer tells no others."""
        numbers = (self.loss, self.learning_rate, *self.motion)
        return (
            all(map(math.isfinite, numbers)) and len(self.motion) in (0, len(STILL)) and 0 <= self.links <= _LINKS_MAX
        )


class Periods:
    """Decides one peer's period, by `policy`, from its own numbers and those of its neighbours. `parameters`: this many
    elements at the start of a model are parameters."""

    def __init__(self, policy: PeriodPolicy, parameters: int, clock: RunClock) -> None:
        self._policy, self._clock = policy, clock
        self._sampler = MotionSampler(parameters) if policy.watches else None
        self._exchange_s = 0.0
        """Seconds that the last exchange took."""

    @property
    def watched(self) -> bool:
        """Whether the policy needs a copy of the model after half of a round's local steps."""
        return self._sampler is not None

    def begin(self, model: Tensor) -> None:
        """Note the `model` [n], the result of a mix, from which local steps begin."""
        if self._sampler is not None:
            self._sampler.begin(model)

    def told(self, update: Update) -> Told:
        """The numbers of the local steps of `update`, for this peer to tell its neighbours. `links` is not set yet. A
        loss that is not finite is told as 0. To be called once for each update, after `begin`."""
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
        """The policy's new state, and with it the next period. `state`: the present one; `of`: the numbers that this
        peer and its neighbours have told in this round, this peer's at least (ValueError without any); `exchange_s`:
        seconds that the exchange took, which go into the motion that the next `told` tells."""
        self._exchange_s = exchange_s
        losses, rates, motions, _ = zip(*of, strict=True)
        motion = Motion(*map(_mean, zip(*(one for one in motions if one), strict=True)))
        return self._policy.update(state, Numbers(_mean(losses), self._clock.elapsed_s, _mean(rates), motion))


def _mean(column: Iterable[float]) -> float:
    numbers = list(column)
    return sum(numbers) / len(numbers)
