"""A period without a setting: it is as long as pays, and as short as the peers' differences demand."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from .policy import Motion, Numbers, PeriodState, check_number, recall

_ALIKE = 1.5
"""Periods within this factor are as good as the same."""
_FIRST, _GROWTH = 4, 4
"""The period before anything is measured, and the factor that a period grows by at most: measurements may not last."""
_SUMS = ("apart", "drift", "together", "early", "late")
_MIXED = -2.0
"""The count of rounds begins here after a change of the period: measurements of the first two are of the former one."""


class Seen(NamedTuple):
    """What is remembered: sums over the rounds since the period changed last, older ones counting less; how often it
    was halved, and at which learning rate; the period of the last round; and what an averaging took with a period, and
    with the one ``before`` that."""

    rounds: float = 0.0
    apart: float = 0.0
    drift: float = 0.0
    together: float = 0.0
    early: float = 0.0
    late: float = 0.0
    halvings: float = 0.0
    learning_rate: float = 0.0
    last: float = 0.0
    step_s: float = 0.0
    period: float = 0.0
    averaging_s: float = 0.0
    before: float = 0.0
    before_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """Knows neither the horizon nor a good period, and measures what decides on both.

    **Start.** An averaging takes alpha times as long as a local step. Training takes 1 + alpha/period of the time of
    the steps alone: with ``period = share * alpha`` that is 1 + 1/share, and nothing is left to gain above it. From
    4 it gets there by factors of 4. Where peers are not equally fast, the fast wait in each averaging for the slow, the
    longer the period: what an averaging takes longer with a longer period is counted to the steps (`_alpha`).

    **Halve.** Averaging rarely does harm when the peers' data differ, as each follows its own; noise alone does not, as
    the mean of the peers is spared most of it (for a quadratic loss all of it: local SGD's mean is SGD of the large
    batch whatever the period). The two are told apart by time: the part of peer i's way that two rounds have in common,
    <d_i, d_i'>, is drift, the rest is noise (`Motion`). The period is halved after some rounds in which

    - the peers drift (drift above ``drift_far`` of what sets them apart) and are at their own ends: the second half of
      the local steps goes no further than ``late`` of the first, in what two rounds have in common; or
    - drift is most of what sets them apart (``drift_still``), and the mean gets nowhere: <x - x', x' - x''> <= 0. That
      is Pflug's test (1990) for a constant step that has done all it can, here for a constant period.

    **Double again** when the learning rate has fallen to half: drift is proportional to learning rate times period.

    All are sums over the peers' models, so a few numbers that ride along with the round tell them.
    """

    share: float = 8.0
    rounds: int = 8
    """Rounds over which is averaged, and after which the mean may be found to get nowhere."""
    rounds_min: int = 4
    """Rounds after which peers may be found to be at their own ends."""
    drift_far: float = 0.15
    drift_still: float = 0.5
    late: float = 0.4
    period_max: int = 512
    watches: ClassVar[bool] = True

    def start(self) -> PeriodState:
        return PeriodState(_FIRST)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        """As the protocol says; raises ValueError on a learning rate that is not finite. One below 0, as of a linear
        schedule that is stepped beyond its end, is as unknown as one of 0."""
        check_number("the learning rate", numbers.learning_rate, low=-math.inf)
        seen = self._with(Seen(*recall(state, len(Seen._fields))), numbers.motion)._replace(last=state.period)
        if seen.learning_rate == 0:
            seen = seen._replace(learning_rate=max(0.0, numbers.learning_rate))
        if 0 < numbers.learning_rate <= seen.learning_rate / 2:
            seen = seen._replace(learning_rate=numbers.learning_rate, halvings=max(0.0, seen.halvings - 1))
        elif state.period > 1 and (self._at_their_ends(seen) or self._nowhere(seen)):
            seen = seen._replace(halvings=seen.halvings + 1)
        wanted = min(self._wanted(seen, state.period), _GROWTH * state.period)
        if max(wanted, state.period) <= _ALIKE * min(wanted, state.period):
            return PeriodState(state.period, seen)
        return PeriodState(round(wanted), seen._replace(rounds=_MIXED, **dict.fromkeys(_SUMS, 0.0)))

    def _with(self, seen: Seen, motion: Motion) -> Seen:
        if motion.step_s <= 0:
            return seen
        if seen.last != seen.period:  # the averaging was the last round's
            seen = seen._replace(period=seen.last, averaging_s=0.0, before=seen.period, before_s=seen.averaging_s)
        seen = seen._replace(
            step_s=_usual(seen.step_s, motion.step_s),
            averaging_s=_usual(seen.averaging_s, motion.averaging_s),
            rounds=seen.rounds + 1,
        )
        if seen.rounds <= 0:
            return seen
        kept = 1 - 1 / self.rounds
        return seen._replace(**{name: kept * getattr(seen, name) + getattr(motion, name) for name in _SUMS})

    def _at_their_ends(self, seen: Seen) -> bool:
        drifting = seen.rounds >= self.rounds_min and seen.drift > self.drift_far * seen.apart
        return drifting and seen.late < self.late**2 * seen.early

    def _nowhere(self, seen: Seen) -> bool:
        drifting = seen.rounds >= self.rounds and seen.drift > self.drift_still * seen.apart
        return drifting and seen.together <= 0

    def _wanted(self, seen: Seen, period: int) -> float:
        if seen.step_s == 0:
            return min(period, self.period_max)
        whole = min(self.share * _alpha(seen), self.period_max)
        return max(1.0, whole / 2 ** min(seen.halvings, 1000.0))


def _alpha(seen: Seen) -> float:
    """How many local steps an averaging takes, on the line through what it took with the last two periods."""
    waited_s = (seen.averaging_s - seen.before_s) / (seen.period - seen.before) if seen.before else 0.0
    waited_s = max(0.0, waited_s)
    return max(0.0, seen.averaging_s - waited_s * seen.period) / (seen.step_s + waited_s)


def _usual(before_s: float, now_s: float) -> float:
    """What is slow for once, as first rounds are, counts little; what is fast counts at once."""
    return min(now_s, before_s + (now_s - before_s) / 4) if before_s else now_s
