"""Period policies: how many local steps peers take until the next average. A policy maps a state and a round's numbers
to the next state.

Peers that are given identical numbers, as from `mean.combine`, choose the same period without further messages. In
gossip each peer has its own numbers and its own period.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

PERIOD_LIMIT = 1_000_000
"""The most local steps between two averages; a larger number is taken for a typing error."""
MEMORY_MAX = 16
FLOAT_MAX = math.nextafter(math.inf, 0)


class Motion(NamedTuple):
    """How the peers moved in the round before the last one, and how long that took: means over the peers. (The motion
    of a round is known only once its mean is, so the next round's contributions carry it.)

    With x_i the model of peer i after its local steps, x the mean of all, d_i = x_i - x, and x', d_i' of the round
    before. ``early`` and ``late``: as ``drift``, for the displacement in the first and in the second half of the local
    steps. The noise of two rounds is independent, so it cancels in products of two rounds. All are 0 where unknown.
    """

    step_s: float = 0.0
    """Seconds of a local step."""
    averaging_s: float = 0.0
    """Seconds of the averaging, including the wait for others."""
    apart: float = 0.0
    """Mean of |d_i|^2: how far the peers' models are from their mean."""
    drift: float = 0.0
    """Mean of <d_i, d_i'>: how far the peers move apart in the same direction in both rounds, so without noise."""
    together: float = 0.0
    """<x - x', x' - x''>: how far the mean moves in the same direction in both rounds, so without noise."""
    early: float = 0.0
    late: float = 0.0


STILL = Motion()


class Numbers(NamedTuple):
    """The numbers of a round, averaged over the peers. ``loss``: mean training loss over the round's local steps, 0 if
    no peer reported one; ``elapsed_s``: seconds since training began; ``learning_rate``: of the local optimizer, in the
    round's last step, 0 if unknown; ``motion``: of the round before (`Motion`)."""

    loss: float
    elapsed_s: float
    learning_rate: float
    motion: Motion = STILL


@dataclass(frozen=True, slots=True)
class PeriodState:
    """A policy's state. ``period``: local steps until the next average, 1 to `PERIOD_LIMIT`, else ValueError;
    ``memory``: the policy's other numbers."""

    period: int
    memory: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_whole("period", self.period, 1, PERIOD_LIMIT)

    def to_plain(self) -> list[float]:
        """The state as a list of numbers for a snapshot: the period, then the memory."""
        return [float(self.period), *self.memory]

    @classmethod
    def from_plain(cls, plain: object) -> "PeriodState":
        """The state that `to_plain` wrote. Raises ValueError on anything else."""
        most = 1 + MEMORY_MAX
        if not isinstance(plain, list | tuple) or not 1 <= len(plain) <= most or not all(map(_is_number, plain)):
            raise ValueError(f"a period state must be a list of 1 to {most} finite numbers, got {plain!r:.200}")
        period, *memory = plain
        return cls(int(period) if period == int(period) else period, tuple(map(float, memory)))


class PeriodPolicy(Protocol):
    """A rule that decides after every averaging round how many local steps are taken before the next."""

    watches: ClassVar[bool]
    """Whether the policy uses the motion of the models, for which the peers sample them in every round."""

    def start(self) -> PeriodState:
        """The state before the first round."""
        ...

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        """The state after an averaging round, in which the next period is ``state.period``. The caller calls it once
        after each completed round, with that round's averaged numbers."""
        ...


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -FLOAT_MAX <= value <= FLOAT_MAX


def check_whole(name: str, value: float, low: int, high: int) -> None:
    """Raises ValueError unless ``value`` is an int from ``low`` to ``high``; a bool is none. ``name`` begins the
    error."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r:.60}")


def check_number(name: str, value: float, low: float = 0.0) -> None:
    """Raises ValueError unless ``value`` is finite and at least ``low``. ``name`` begins the error."""
    if not math.isfinite(value) or value < low:
        raise ValueError(f"{name} must be finite{' and not negative' if low == 0 else ''}, got {value}")


def recall(state: PeriodState, count: int) -> tuple[float, ...]:
    """The memory of a policy that keeps ``count`` numbers. Returns ``count`` zeros before the first round, and when the
    memory is another policy's, as in a run that was resumed with another policy."""
    return state.memory if len(state.memory) == count else (0.0,) * count
