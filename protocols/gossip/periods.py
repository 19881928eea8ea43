"""The number of local steps between two mixes, which each peer decides from its own numbers and its neighbours'.

A period policy is made for numbers that are averaged over all peers. Here they are averaged over a peer and the
neighbours whose vectors it has taken in the round. So neighbours decide nearly alike, and no peer needs to hear of all
others. A policy that looks at the models' distances from the mean of all (`PeriodPolicy.watches`) cannot be used: no
peer has that mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...aggregation.periods.policy import Numbers, PeriodPolicy, PeriodState
from ..conversation import Update


class Told(NamedTuple):
    """A peer's numbers of a round's local steps: their mean loss, and the learning rate of the last."""

    loss: float = 0.0
    learning_rate: float = 0.0


def told(update: Update) -> Told:
    """The numbers that a peer tells of the local steps of `update`."""
    return Told(update.loss if math.isfinite(update.loss) else 0.0, update.learning_rate)


def decided(policy: PeriodPolicy, state: PeriodState, of: Iterable[Told], elapsed_s: float) -> PeriodState:
    """The policy's state after a round in which a peer and its neighbours have told `of`. `elapsed_s`: since the run
    began."""
    loss, learning_rate = map(_mean, zip(*of, strict=True))
    return policy.update(state, Numbers(loss, max(0.0, elapsed_s), learning_rate))


def _mean(column: Sequence[float]) -> float:
    return sum(column) / len(column)
