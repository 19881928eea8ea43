"""Post-local SGD: synchronous first, local steps once the learning rate falls."""

from dataclasses import dataclass
from typing import ClassVar

from .policy import PERIOD_LIMIT, Numbers, PeriodState, check_whole, recall


@dataclass(frozen=True, slots=True)
class PostLocal:
    """The period is 1 until the learning rate falls below the highest value so far, then ``steps`` to the end (Lin et
    al., "Don't use large mini-batches, use local SGD", ICLR 2020). With ``after`` above 0 it is 1 for the first
    ``after`` steps and then ``steps``, whatever the learning rate is. Raises ValueError unless ``steps`` is 1 to
    `PERIOD_LIMIT` and ``after`` 0 to 10**12."""

    steps: int
    after: int = 0
    watches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("the period", self.steps, 1, PERIOD_LIMIT)
        check_whole("the number of steps before it", self.after, 0, 10**12)

    def start(self) -> PeriodState:
        return PeriodState(1)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        rounds, highest = recall(state, 2)
        rounds, highest = rounds + 1, max(highest, numbers.learning_rate)
        begun = rounds >= self.after if self.after else numbers.learning_rate < highest
        return PeriodState(self.steps if begun or state.period > 1 else 1, (rounds, highest))
