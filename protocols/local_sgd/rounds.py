"""What a peer brings to a round of averaging, and what comes out of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...aggregation.fednova import UNKNOWN_SPEEDS, Speeds
from ...aggregation.periods.policy import STILL, Motion, Numbers
from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ...aggregation.vector import Part, all_finite
from ..transfer.chunks import Key
from ..transport import PeerId
from .filling import Filling
from .state import State

LOCAL_SGD = "local_sgd"
"""The family of its messages, and the name of its channel where a run has one level of it."""

Attempt = tuple[int, int, int]
"""(generation, round, turn): one attempt at a turn of a site, counted from 1, before that round."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a peer brings to a round: its model after the local steps [n], the samples it saw as weight (0: nothing,
    I only follow), its mean loss, its learning rate, and the seconds it has trained since the run began. `filling`: the
    vector is still being written, and says how far it is. `motion`: of the rounds before, as far as this peer saw it;
    `links`: what the ways to the others cost, as measured. `steps`: local steps that led to it, 0: not to be counted;
    `speeds`: of those, where peers go by their own pace."""

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

    @property
    def signals(self) -> tuple[float, ...]:
        """What is averaged beside the model: what the period is chosen by, what links cost, and how fast peers are."""
        return self.loss, self.elapsed_s, self.learning_rate, *self.motion, *self.links, *self.speeds

    def check(self, *messages: Tensor) -> None:
        """Raises ValueError when anything is not finite in `messages`, which is what others are about to have of this:
        weighted, as `contribute` has made it."""
        if self.weight == 0 or all(map(all_finite, messages)):
            return
        most = torch.finfo(self.vector.dtype).max
        beyond = f"beyond the range of {str(self.vector.dtype)[6:]} when weighted by {self.weight:g} samples"
        for name, number in zip((*_NAMES, "weight"), (*self.signals, self.weight), strict=True):
            if not math.isfinite(number):
                raise ValueError(f"a contribution needs a finite {name}, got {number}")
            if name != "weight" and abs(number * self.weight) > most:
                raise ValueError(f"a contribution's {name} is {number:g}, {beyond}")
        broken = sum(int((~torch.isfinite(message)).sum()) for message in messages)
        if all_finite(self.vector):
            raise ValueError(f"{broken} numbers of the model are too large to be averaged: {beyond}")
        raise ValueError(f"{broken} numbers of the model are not finite: it has diverged")


_MOTION, _LINKS, _SPEEDS = len(Motion._fields), len(LinkCosts._fields), len(Speeds._fields)
SIGNALS = 3 + _MOTION + _LINKS + _SPEEDS
_NAMES = ("loss", "elapsed_s", "learning_rate", *Motion._fields, *LinkCosts._fields, *Speeds._fields)


def told(signals: Sequence[float]) -> tuple[Numbers, LinkCosts, Speeds]:
    """What the mean of all peers' `Contribution.signals` says."""
    loss, elapsed_s, learning_rate, *others = signals
    motion, links, speeds = others[:_MOTION], others[_MOTION:-_SPEEDS], others[-_SPEEDS:]
    return Numbers(loss, elapsed_s, learning_rate, Motion(*motion)), LinkCosts(*links), Speeds(*speeds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round that is over, with the agreed mean loss and training time. `vector`: what this peer trains on from, which
    is the agreed model unless only a fragment was averaged, its `part`. `caught_up`: this peer did not average but
    took the result from another; then loss and time are its own. `compute_s`: until the contribution was whole;
    `hidden_s`: of the averaging, while local steps went on.
    `waited_for`: whose own part was waited for, most of that time."""

    state: State
    vector: Tensor
    part: Part
    loss: float
    elapsed_s: float
    generation: int
    members: int
    caught_up: bool
    waited_for: PeerId | None
    compute_s: float
    wait_s: float
    transfer_s: float
    hidden_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """What a peer has computed in a round and not committed yet. `fingerprint`: of the sum it came from; `weight`: of
    all that is in it."""

    key: Key
    state: State
    weight: float
    loss: float
    elapsed_s: float
    fingerprint: int


# What a simulation's checkers look at (`testpoints`).


@dataclass(frozen=True, slots=True)
class Contributed:
    """A peer began an attempt, with this in its hands, among these members."""

    key: Key
    vector: Tensor
    weight: float
    members: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """A peer has the result of an attempt and tells the coordinator so."""

    key: Key
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A peer goes on from this model. `key`: the attempt it is the result of; None: fetched from another peer."""

    round: int
    vector: Tensor
    key: Key | None
    weight: float


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer goes on to a view, in which all go on from `round`, whose result `donors` have."""

    generation: int
    members: tuple[PeerId, ...]
    round: int
    donors: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class SiteContributed:
    """A peer began an attempt at a turn of its site, with this in its hands, among these members."""

    attempt: Attempt
    vector: Tensor
    weight: float
    members: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class SiteCommitted:
    """A peer goes on from the mean of its site, the result of that attempt."""

    attempt: Attempt
    vector: Tensor
