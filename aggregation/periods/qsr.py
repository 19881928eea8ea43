"""QSR: the period grows as the learning rate falls."""

import math
from dataclasses import dataclass
from typing import ClassVar

from .policy import PERIOD_LIMIT, Numbers, PeriodState, check_whole, recall

_SAME = 1e-6
"""The relative difference up to which rates are equal: a mean over the peers has rounding errors."""


@dataclass(frozen=True, slots=True)
class Quadratic:
    """The quadratic synchronisation rule (Gu et al., "A quadratic synchronization rule for distributed deep learning",
    ICLR 2024): after each round the period is ``max(steps, floor((scale/eta)^2))`` with eta the learning rate, at most
    `PERIOD_LIMIT`. It is ``steps`` as long as eta rises, first of all in the first round: a warm-up begins at rates of
    which the rule would make a period longer than the run. (The paper takes the period that follows the warm-up, which
    is not known yet.) An eta of 0 keeps the period. Raises ValueError on a ``scale`` that is not above 0 and finite,
    and on ``steps`` that no period may have."""

    steps: int
    scale: float
    watches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("the period", self.steps, 1, PERIOD_LIMIT)
        if not 0 < self.scale < math.inf:
            raise ValueError(f"the scale must be a positive number, got {self.scale}")

    def start(self) -> PeriodState:
        return PeriodState(self.steps)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        (before,), rate = recall(state, 1), numbers.learning_rate
        if rate <= 0:
            return PeriodState(state.period, (before,))
        if rate > before * (1 + _SAME):
            return PeriodState(self.steps, (rate,))
        ruled = (self.scale / max(rate, self.scale / math.sqrt(PERIOD_LIMIT))) ** 2
        return PeriodState(min(max(self.steps, math.floor(ruled)), PERIOD_LIMIT), (rate,))
