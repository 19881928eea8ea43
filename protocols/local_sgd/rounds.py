"""A peer's contribution to a round of averaging, the round's outcome, and the events that a simulation's
checkers read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from ...aggregation.fednova import UNKNOWN_SPEEDS, Speeds
from ...aggregation.periods.policy import STILL, Motion, Numbers
from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ...aggregation.vector import Part, all_finite
from ..filling import Filling
from ..transfer.chunks import AttemptId
from ..transport import PeerId
from .state import State

LOCAL_SGD = "local_sgd"
"""The family of local SGD's messages, and the name of its channel where a run has one level of averaging."""

SiteAttemptId = tuple[int, int, int]
"""(generation, round, turn): the id of an attempt of a site to average within the round; its averages in a round, the
turns, count from 1."""


class Contribution(NamedTuple):
    """A peer's contribution to a round. `vector` [n]: its model after the local steps, or its gradient; `weight`: the
    number of samples behind it (of local steps where a script brings a model), scaled where each peer has its own pace
    (`Pace.brought`), 0: it takes no local steps in this round; `loss`: their mean loss, 0: not reported;
    `learning_rate`: of the optimizer's first parameter group; `elapsed_s`: seconds from the beginning of the run to
    that of the round's local steps on this peer. `filling`: tracks the vector while it is still being written.
    `motion`: the movement of the models in earlier rounds, as far as this peer saw it. `links`: measured costs of the
    links to the others. `steps`: local steps that led to the model, 0: not counted. `speeds`: how fast these steps
    were, where each peer has its own pace. `epochs`: passes over the data in the round. `counts`: the signals by which
    the run may end (`ends`). `grown`, `base`: of `vector`, see `Update`."""

    vector: Tensor
    weight: float
    loss: float
    learning_rate: float
    elapsed_s: float
    filling: Filling | None = None
    motion: Motion = STILL
    links: LinkCosts = UNKNOWN
    steps: int = 0
    speeds: Speeds = UNKNOWN_SPEEDS
    epochs: float = 0.0
    counts: tuple[float, ...] = ()
    grown: tuple[str, ...] = ()
    base: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def signals(self) -> tuple[float, ...]:
        """The numbers that are averaged beside the model: those for the period policy (loss, times, learning rate,
        motion), link costs, the peers' speeds, and the counts by which the run may end."""
        return self.loss, self.elapsed_s, self.learning_rate, *self.motion, *self.links, *self.speeds, *self.counts

    def check(self, *messages: Tensor) -> None:
        """Raises ValueError when `messages`, the weighted form of this contribution that is about to be sent
        (`contribute`), hold a number that is not finite. With a weight of 0 it raises nothing: such a message is
        zeros."""
        if self.weight == 0 or all(map(all_finite, messages)):
            return
        most = torch.finfo(self.vector.dtype).max
        beyond = f"beyond the range of {str(self.vector.dtype)[6:]} when weighted by {self.weight:g} samples"
        names = (*_NAMES, *("count towards the end",) * len(self.counts), "weight")
        for name, number in zip(names, (*self.signals, self.weight), strict=True):
            if not math.isfinite(number):
                raise ValueError(f"a contribution needs a finite {name}, got {number}")
            if name != "weight" and abs(number * self.weight) > most:
                raise ValueError(f"a contribution's {name} is {number:g}, {beyond}")
        broken = sum(int((~torch.isfinite(message)).sum()) for message in messages)
        if all_finite(self.vector):
            raise ValueError(f"{broken} numbers of the model are too large to be averaged: {beyond}")
        raise ValueError(f"{broken} numbers of the model are not finite: it has diverged")


_MOTION, _LINKS, _SPEEDS = len(Motion._fields), len(LinkCosts._fields), len(Speeds._fields)
_SIGNALS = 3 + _MOTION + _LINKS + _SPEEDS
_NAMES = ("loss", "elapsed_s", "learning_rate", *Motion._fields, *LinkCosts._fields, *Speeds._fields)


class Told(NamedTuple):
    """The means of all peers' `Contribution.signals`, by their use."""

    numbers: Numbers
    links: LinkCosts
    speeds: Speeds
    counts: tuple[float, ...]


def told(signals: Sequence[float]) -> Told:
    """The mean `signals` of a round, in the order of `Contribution.signals`, sorted by their use."""
    loss, elapsed_s, learning_rate, *others = signals[:_SIGNALS]
    motion, links, speeds = others[:_MOTION], others[_MOTION:-_SPEEDS], others[-_SPEEDS:]
    numbers = Numbers(loss, elapsed_s, learning_rate, Motion(*motion))
    return Told(numbers, LinkCosts(*links), Speeds(*speeds), tuple(signals[_SIGNALS:]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round that is over on this peer. `state`: the agreed state after it. `loss`, `elapsed_s`: the agreed means of
    the training loss, and of the time when the peers' local steps began (`Contribution.elapsed_s`). `vector` [n]: the
    model from which this peer continues, or the mean gradient; it is the agreed one, unless only the fragment `part`
    was averaged. `generation`, `members`: number of the view, and of its members. `caught_up`: this peer did not
    average but fetched the result; then loss and time are its own. `compute_s`: seconds until its contribution was
    complete. `hidden_s`: seconds of the averaging during which local steps went on. `waited_for`: the peer whose
    contribution was waited for most of `wait_s`; None: none was. `model_bytes`: bytes of the vector that this peer
    averaged with others, before a codec; 0: it caught up, or is alone."""

    state: State
    vector: Tensor
    part: Part
    loss: float
    elapsed_s: float
    generation: int
    members: int
    caught_up: bool
    model_bytes: int
    waited_for: PeerId | None
    compute_s: float
    wait_s: float
    transfer_s: float
    hidden_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a round that a peer has computed and not committed yet. `fingerprint`: that of the sum that led to
    it. `weight`: the sum of all contributions' weights."""

    attempt: AttemptId
    state: State
    weight: float
    loss: float
    elapsed_s: float
    fingerprint: int


# Events for a simulation's checkers (`testpoints`).


@dataclass(frozen=True, slots=True)
class Contributed:
    """Event for a simulation's checkers: a peer began an attempt with this vector and weight, among these members.
    `steps`, `speeds`: of its `Contribution`; `agreed`: the speeds on which the peers have agreed before."""

    attempt: AttemptId
    vector: Tensor
    weight: float
    members: tuple[PeerId, ...]
    steps: int = 0
    speeds: Speeds = UNKNOWN_SPEEDS
    agreed: Speeds = UNKNOWN_SPEEDS


@dataclass(frozen=True, slots=True)
class Computed:
    """Event for a simulation's checkers: a peer has computed the result of an attempt, with this fingerprint, and votes
    for it."""

    attempt: AttemptId
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Event for a simulation's checkers: a peer has made this model its own. `attempt`: the attempt that led to it;
    None: the peer fetched it from another peer. `weight`: the sum of all contributions' weights. `elapsed_s`: the mean
    of `Contribution.elapsed_s`, or this peer's own if the weight is 0. `period`: local steps of the next round, by the
    run's policy. These three are 0 if the model was fetched."""

    round: int
    vector: Tensor
    attempt: AttemptId | None
    weight: float
    elapsed_s: float = 0.0
    period: int = 0


@dataclass(frozen=True, slots=True)
class Fetches:
    """Event for a simulation's checkers: a peer begins to fetch the state with this number and fingerprint, or one of
    the round `least` or later, as a member that is behind (`lags`) or as a learner."""

    number: int
    fingerprint: int
    least: int
    lags: bool


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Event for a simulation's checkers: no donor has given the state that a member tried to fetch."""


@dataclass(frozen=True, slots=True)
class WentOn:
    """Event for a simulation's checkers: a peer's replica is to load this model, and takes its next local steps from
    there."""

    vector: Tensor


@dataclass(frozen=True, slots=True)
class Installed:
    """Event for a simulation's checkers: a peer has gone on to a new view, whose members all continue from the result
    of `round`, which the `donors` hold."""

    generation: int
    members: tuple[PeerId, ...]
    round: int
    donors: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class SiteContributed:
    """Event for a simulation's checkers: a peer began an attempt of its site with this vector and weight, among these
    members."""

    attempt: SiteAttemptId
    vector: Tensor
    weight: float
    members: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class SiteCommitted:
    """Event for a simulation's checkers: a peer continues from the mean of its site, the result of this attempt."""

    attempt: SiteAttemptId
    vector: Tensor
