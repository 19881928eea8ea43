"""QSR: the period grows as the learning rate falls."""

import math
from dataclasses import dataclass
from typing import ClassVar

from .policy import PERIOD_LIMIT, Numbers, PeriodState, check_whole


@dataclass(frozen=True, slots=True)
class Quadratic:
    """The quadratic synchronisation rule (Gu et al., "A quadratic synchronization rule for distributed deep learning",
    ICLR 2024): after each round the period is ``max(steps, floor((scale/eta)^2))`` with eta the learning rate, at most
    `PERIOD_LIMIT`, which it is at a learning rate of 0. The first period is ``steps``. Raises ValueError on a ``scale``
    that is not above 0 and finite, and on ``steps`` that no period may have."""

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
        rate = max(numbers.learning_rate, self.scale / math.sqrt(PERIOD_LIMIT))
        return PeriodState(min(max(self.steps, math.floor((self.scale / rate) ** 2)), PERIOD_LIMIT))
