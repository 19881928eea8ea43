"""The end of a run: after so many local steps, samples or epochs, or by a metric.

All peers decide alike when the run is over, because they count with numbers that the round itself has averaged:

    samples     the sum of the contributions' weights; with peers at paces of their own, where weights are other
                numbers, each peer's samples over its weight are a signal beside the model
    epochs      each peer's passes over its own data in the round are a signal; the mean of all is added up
    metrics     the peer that has evaluated a model brings its metrics as signals of its next contribution, with a 1
                that the others have not: the mean over the mean of that 1 is what it brought

The counts are part of the agreed state, so a peer that catches up, takes over as coordinator or resumes decides as the
others do. The last period is cut to the local steps that are left by the last round's counts a step. A run therefore
overshoots by less than a local step of each peer, unless it ends in its first round, or by a change of the peers.

Cost: 4 to 8 bytes in a round for each signal, and none in a run that ends by its steps or by equal samples alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...aggregation.goals import Goal
from ..conversation import End

NOT_COUNTED = -1.0
_SLACK = 0.01
"""A run is over when less than this fraction of a local step is missing, because counts are sums of rounded means."""
_METRIC_MAX = 1e30
"""A metric of larger magnitude is not sent: times a weight it might overflow 32 bits."""
_DIGITS = 6
"""Significant digits to which a metric is rounded after it was averaged as a signal of 32 bits, so that a metric of
0.97 reaches a goal of 0.97."""
_SHOWN = 4
"""Significant digits of a metric in words, as everywhere else."""


class Counts(NamedTuple):
    """The counts since the run began, equal on all peers. `samples`: of all peers together; `epochs`: passes of a peer
    over its data, a mean over the peers; both are `NOT_COUNTED` (-1) where no setting needs them. `samples_a_step`,
    `epochs_a_step`: how much of each one local step added in the last round. `told`: the last round whose model was
    evaluated, 0: none; `goal`, `headline`: that model's values of the metrics by which the run may end. `best`: the
    best headline so far, that of round `best_round`. `about`: a checksum of these metrics' names."""

    samples: float = NOT_COUNTED
    epochs: float = NOT_COUNTED
    samples_a_step: float = 0.0
    epochs_a_step: float = 0.0
    goal: float = 0.0
    headline: float = 0.0
    told: int = 0
    best: float = 0.0
    best_round: int = 0
    about: int = 0


def counts_of(plain: object) -> Counts | None:
    """The counts from a list of their numbers, as off the wire or a file; None for an empty list. Raises ValueError on
    anything else."""
    if not isinstance(plain, list | tuple) or len(plain) not in (0, len(Counts._fields)):
        raise ValueError("its counts make no sense")
    for number in plain:
        if type(number) not in (int, float) or not -1e300 <= number <= 1e300:
            raise ValueError("its counts make no sense")
    if not plain:
        return None
    counts = Counts(*plain)
    if any(type(number) is not int for number in (counts.told, counts.best_round, counts.about)):
        raise ValueError("its counts make no sense")
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The conditions that end a run, the first of them to be met; None: the run does not end by this one. `steps`:
    local steps of each peer; `samples`: those of all peers together; `epochs`: passes of a peer over its data; `goal`:
    for a metric; `patience`: rounds without a better value of the metric `headline`. `higher`: whether a larger
    headline is better. `shares`: the metrics that are told in percent. `own_pace`: whether each peer has its own number
    of local steps (`fednova`)."""

    steps: int | None = None
    samples: float | None = None
    epochs: float | None = None
    goal: Goal | None = None
    patience: int | None = None
    headline: str = ""
    higher: bool = True
    shares: frozenset[str] = frozenset()
    own_pace: bool = False

    @property
    def judges(self) -> bool:
        """Whether a metric, by a goal or by patience, may end the run."""
        return self.goal is not None or self.patience is not None

    @property
    def counts(self) -> bool:
        """Whether samples, epochs or metrics may end the run, and not only local steps."""
        return self.judges or self.samples is not None or self.epochs is not None

    def begun(self, counts: Counts | None, step: int) -> Counts | None:
        """The counts of a run that begins, or continues from `counts` (None: nothing was counted) after `step` local
        steps. If this run counts nothing (`counts` of this object is false), `counts` itself. Raises ValueError when a
        condition of this run needs a number that was not counted from the beginning."""
        if not self.counts:
            return counts
        if step == 0:
            return Counts(
                samples=NOT_COUNTED if self.samples is None else 0.0,
                epochs=NOT_COUNTED if self.epochs is None else 0.0,
            )
        found = counts or Counts()
        for name, wished, counted in (
            ("samples", self.samples, found.samples),
            ("epochs", self.epochs, found.epochs),
        ):
            if wished is not None and counted == NOT_COUNTED:
                raise ValueError(f"this run has not counted its {name} from the beginning: leave out --{name}")
        return found

    def brought(
        self, *, samples: float, weight: float, epochs: float, metrics: Mapping[str, float] | None
    ) -> tuple[float, ...]:
        """The signals about the end that a peer adds to its contribution, of those above the ones that this run needs:
        samples over weight; epochs; and 1 and two metrics, or three zeros. `samples`, `epochs`: its own in the round;
        `weight`: that of the contribution; `metrics`: the values from an evaluation that the others do not know yet;
        None: there is none."""
        signals = list[float]()
        if self._scaled:
            signals.append(samples / weight if weight else 0.0)
        if self.epochs is not None:
            signals.append(epochs)
        if self.judges:
            signals += self._told(metrics)
        return tuple(signals)

    @property
    def _scaled(self) -> bool:
        return self.samples is not None and self.own_pace

    def _told(self, metrics: Mapping[str, float] | None) -> tuple[float, float, float]:
        headline = math.nan if metrics is None else metrics.get(self.headline, math.nan)
        goal = headline if metrics is None or self.goal is None else metrics.get(self.goal.metric, math.nan)
        sendable = abs(goal) <= _METRIC_MAX and abs(headline) <= _METRIC_MAX  # False for NaN
        return (1.0, goal, headline) if sendable else (0.0, 0.0, 0.0)

    def counted(
        self, before: Counts | None, signals: tuple[float, ...], weight: float, *, steps: int, round: int
    ) -> Counts | None:
        """The counts after a round, from those `before` it; `before` itself if it is None, or if this run counts
        nothing. `steps`: the round's local steps; `signals`, `weight`: the mean signals about the end and the total
        weight of its contributions; `round`: the number of the round before."""
        if before is None or not self.counts:
            return before
        found, left = before, list(signals)
        samples = _exactly(weight * left.pop(0)) if self._scaled else weight
        if before.samples != NOT_COUNTED:
            found = found._replace(samples=before.samples + samples, samples_a_step=samples / max(1, steps))
        if self.epochs is not None:
            epochs = max(0.0, left.pop(0))
            found = found._replace(epochs=before.epochs + epochs, epochs_a_step=epochs / max(1, steps))
        if self.judges and left[0] > 0:
            found = self._heard(found, _tidy(left[1] / left[0]), _tidy(left[2] / left[0]), round)
        return found

    def _heard(self, counts: Counts, goal: float, headline: float, round: int) -> Counts:
        better = counts.best_round == 0 or counts.about != self._about
        better = better or (headline > counts.best if self.higher else headline < counts.best)
        if better:
            counts = counts._replace(best=headline, best_round=round)
        return counts._replace(goal=goal, headline=headline, told=round, about=self._about)

    @property
    def _about(self) -> int:
        return zlib.crc32(f"{self.goal and self.goal.metric}\n{self.headline}".encode())

    def left(self, step: int, counts: Counts | None) -> int | None:
        """Local steps that each peer has still to take until the end, as far as is known after `step` local steps.
        `counts`: those of the run so far; None: it ends by its steps alone, or not at all. 0: the run is over; None:
        the end is not known, or there is none."""
        if counts is not None and (self._reached(counts) or self._stuck(counts)):
            return 0
        found = [None if self.steps is None else max(0, self.steps - step)]
        if counts is not None:
            found.append(_left(self.samples, counts.samples, counts.samples_a_step))
            found.append(_left(self.epochs, counts.epochs, counts.epochs_a_step))
        return min((known for known in found if known is not None), default=None)

    def _reached(self, counts: Counts) -> bool:
        return self.goal is not None and self._knows(counts) and self.goal.met(counts.goal)

    def _stuck(self, counts: Counts) -> bool:
        return self.patience is not None and self._knows(counts) and counts.told - counts.best_round >= self.patience

    def _knows(self, counts: Counts) -> bool:
        return counts.told > 0 and counts.about == self._about

    def reason(self, step: int, counts: Counts | None) -> End | None:
        """The condition that ends the run after `step` local steps; None: it is not over. `counts`: those of the run so
        far. Of several conditions that are met, the first of goal, patience, samples, epochs, steps is named."""
        if self.left(step, counts) != 0:
            return None
        if counts is not None and self.goal is not None and self._reached(counts):
            metric = self.goal.metric
            found = f"{metric} {self._number(metric, counts.goal)} in round {counts.told:,}"
            return End("stop", f"{found}, and the goal is {self.goal.told(metric in self.shares)}")
        if counts is not None and self._stuck(counts):
            rounds = f"for {counts.told - counts.best_round:,} rounds"
            best = self._number(self.headline, counts.best, _SHOWN)
            why = f"no better {self.headline} {rounds} than {best} in round {counts.best_round:,}"
            return End("stop_patience", why)
        if counts is not None and _left(self.samples, counts.samples, counts.samples_a_step) == 0:
            return End("samples", f"all peers together have trained on {counts.samples:,.0f} samples")
        if counts is not None and _left(self.epochs, counts.epochs, counts.epochs_a_step) == 0:
            return End("epochs", f"each peer has gone through its data {counts.epochs:.4g} times")
        return End.by_steps(step, step)

    def _number(self, metric: str, value: float, digits: int = _DIGITS) -> str:
        return f"{value:.2%}" if metric in self.shares else f"{value:.{digits}g}"


ENDLESS = Ends()
"""No condition: the run goes on until all peers have left."""


def _left(most: float | None, counted: float, a_step: float) -> int | None:
    """Local steps until `most` are counted, at `a_step` each; None: unknown, or there is no such end."""
    if most is None:
        return None
    missing = most - counted
    if missing <= _SLACK * a_step:
        return 0
    steps = missing / a_step if a_step > 0 else math.inf
    return max(1, math.ceil(steps - _SLACK)) if math.isfinite(steps) else None


def _exactly(samples: float) -> float:
    """A number of samples without the rounding of its mean, where it was whole."""
    return round(samples) if abs(samples - round(samples)) < _SLACK else samples


def _tidy(metric: float) -> float:
    return float(f"{metric:.{_DIGITS}g}")
