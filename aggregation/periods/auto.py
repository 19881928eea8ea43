"""A period without parameters: as long as it saves time, and as short as the differences between the peers demand."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from .policy import Motion, Numbers, PeriodState, check_number, recall

_ALIKE = 1.5
"""Periods within this factor count as equal."""
_FIRST, _GROWTH = 4, 4
"""The first period, before any measurement, and the largest factor of growth, because measurements may soon be
outdated."""
_SUMS = ("apart", "drift", "together", "early", "late")
_MIXED = -2.0
"""The count of rounds just after a change of the period: measurements of the first two rounds belong to the former
period."""


class Seen(NamedTuple):
    """The memory of `Auto`. ``rounds``: rounds counted since the period last changed, from -2 on; ``apart`` to
    ``late``: decaying sums of these fields of `Motion` over them; ``halvings``: by how many factors of 2 the period is
    cut below the one that only saves time, and ``learning_rate`` that at which halvings are judged; ``last``: period of
    the last round; ``step_s``: seconds of a local step; ``averaging_s`` and ``before_s``: seconds of an averaging with
    the ``period``, and with the one ``before`` it."""

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
    """Chooses the period from measurements alone, without a horizon or a first guess from the user.

    **Start.** An averaging takes alpha times as long as a local step. Training takes 1 + alpha/period of the time of
    the steps alone: with ``period = share * alpha`` that is 1 + 1/share, and a longer period saves hardly more. The
    period grows from 4 up to there by factors of 4. Where peers are not equally fast, fast peers wait for slow ones in
    each averaging, the longer the longer the period. The growth of the averaging time with the period therefore counts
    as time of the steps (`_alpha`).

    **Halve.** Rare averaging does harm when the peers' data differ, as each model follows its own data. Noise alone
    does no harm, as it mostly cancels in the mean of the peers (for a quadratic loss fully: local SGD's mean is SGD of
    the large batch whatever the period). The two are told apart over time: of peer i's displacement, the component
    common to two rounds, <d_i, d_i'>, is drift, the rest is noise (`Motion`). The period is halved after some rounds in
    which

    - the peers drift (drift above ``drift_far`` of ``apart``) and each has reached its own minimum: the second half of
      the local steps moves no further than ``late`` times the first, in the component common to two rounds; or
    - drift is most of ``apart`` (``drift_still``), and the mean makes no progress: <x - x', x' - x''> <= 0. That
      is Pflug's test (1990) for a constant step size that makes no more progress, here for a constant period.

    **Double again** when the learning rate has fallen to half: drift is proportional to learning rate times period.

    All these are sums over the peers' models, so they are a few numbers carried along with each round.
    """

    share: float = 8.0
    rounds: int = 8
    """Rounds of the running average, and the rounds after which the mean may be judged to make no progress."""
    rounds_min: int = 4
    """Rounds after which peers may be judged to have reached their own minima."""
    drift_far: float = 0.15
    drift_still: float = 0.5
    late: float = 0.4
    period_max: int = 512
    watches: ClassVar[bool] = True

    def start(self) -> PeriodState:
        return PeriodState(_FIRST)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        """The state after an averaging round with these ``numbers`` (`PeriodPolicy.update`). Raises ValueError on a
        learning rate that is not finite. One below 0, as of a linear schedule that is stepped beyond its end, counts as
        unknown, like 0."""
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
        if seen.last != seen.period:  # the averaging time belongs to the last round
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
    """The time of an averaging as a number of local steps, from the line through the times with the last two
    periods."""
    waited_s = (seen.averaging_s - seen.before_s) / (seen.period - seen.before) if seen.before else 0.0
    waited_s = max(0.0, waited_s)
    return max(0.0, seen.averaging_s - waited_s * seen.period) / (seen.step_s + waited_s)


def _usual(before_s: float, now_s: float) -> float:
    """A smoothed time in seconds: a slow value, as in the first rounds, counts little; a fast one counts at once."""
    return min(now_s, before_s + (now_s - before_s) / 4) if before_s else now_s
