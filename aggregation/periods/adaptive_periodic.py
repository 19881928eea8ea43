"""Adaptive periodic averaging: the period that keeps the variance between the peers' models constant."""

from dataclasses import dataclass
from typing import ClassVar

from .policy import PERIOD_LIMIT, Numbers, PeriodState, check_whole, recall

_LEARNING = 20
"""Rounds in which the usual variance is measured."""


@dataclass(frozen=True, slots=True)
class Even:
    """Keeps the variance between the peers' models, divided by the learning rate, at its mean of the first 20 rounds in
    which both are known. The period begins at ``steps``, 1 to `PERIOD_LIMIT`, else ValueError. After these 20 rounds it
    grows by one when the quotient is below 0.7 of that mean, and shrinks by one, to 1 at least, when it is above 1.3 of
    it. A round in which either is unknown changes nothing (Jiang and Agrawal, "Adaptive periodic averaging", arXiv
    2007.06134)."""

    steps: int
    watches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("the period", self.steps, 1, PERIOD_LIMIT)

    def start(self) -> PeriodState:
        return PeriodState(self.steps)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        rounds, usual = recall(state, 2)
        apart = numbers.motion.apart / numbers.learning_rate if numbers.learning_rate > 0 else 0.0
        if apart == 0 or rounds < _LEARNING:
            known = rounds + (apart > 0)
            return PeriodState(state.period, (known, usual + (apart - usual) / known if apart else usual))
        period = state.period + (apart < 0.7 * usual) - (apart > 1.3 * usual)
        return PeriodState(min(max(period, 1), PERIOD_LIMIT), (rounds, usual))
