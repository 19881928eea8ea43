"""A fixed period: the same number of local steps between any two averages."""

from dataclasses import dataclass
from typing import ClassVar

from .policy import PERIOD_LIMIT, Numbers, PeriodState, check_whole


@dataclass(frozen=True, slots=True)
class Fixed:
    """Average every ``steps`` local steps, 1 to `PERIOD_LIMIT`, else ValueError; 1 is synchronous SGD. Uses none of the
    round's numbers."""

    steps: int
    watches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("the period", self.steps, 1, PERIOD_LIMIT)

    def start(self) -> PeriodState:
        return PeriodState(self.steps)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        return self.start()
