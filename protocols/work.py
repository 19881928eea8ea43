"""Work: the tasks that a conversation gives a replica, and the update with which the replica answers. A replica is one
peer's model with its data and optimizer.

A work has a beginning, which says from which model x [n] the replica goes on, and a job. All vectors are of one layout
[n]. The table in `conversation` tells which works an algorithm has.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from torch import Tensor

from ..aggregation.rows import Rows
from ..aggregation.vector import Part
from .filling import Filling


@dataclass(frozen=True, slots=True)
class Keep:
    """The replica goes on from its model as it is."""


@dataclass(frozen=True, slots=True)
class Load:
    """The replica goes on from `vector` [n]; if it has just brought this very tensor, it need not copy it.
    `fresh_optimizer`: the optimizer's state is cleared. `amid`: the round goes on, and the replica keeps counting its
    samples and losses. `grown`: the names of parameters that are in the vectors of this beginning and were frozen when
    the run began (`aggregation.growth`). `rows`: by table of a sparse embedding, rows that the replica loads too; it
    must not use the other rows of these tables, whose values are old, before a later beginning loads them."""

    vector: Tensor
    fresh_optimizer: bool = False
    amid: bool = False
    grown: tuple[str, ...] = ()
    rows: Mapping[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Add:
    """The replica goes on from x + `change` [n], where only the elements of `part` change. Averaged buffers that must
    not be extrapolated are outside of `part`. `grown`: see `Load`."""

    change: Tensor
    part: Part
    grown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blend:
    """The replica goes on from `share` * x + (1 - `share`) * `vector` [n], where only the elements of `part` change.
    `grown`: see `Load`."""

    vector: Tensor
    share: float
    part: Part
    grown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepWith:
    """The replica goes on from x after one step of its optimizer with this `gradient` [n]; None: with the gradient that
    it has brought last, because no other peer averages with it. Only for a replica that brings gradients."""

    gradient: Tensor | None


@dataclass(frozen=True, slots=True)
class Share:
    """The replica goes on from `vector` [n], and its model lies there from now on; its former values are dropped.
    Others read and write the vector at the same time. The replica's local steps change the model there, and its updates
    bring `vector` itself, no copy. It takes each step within `lock`: a lock that only one replica at a time has, or a
    context that does nothing, as in Hogwild! without locks."""

    vector: Tensor
    lock: AbstractContextManager[None]


Begin = Keep | Load | Add | Blend | StepWith | Share


@dataclass(frozen=True, slots=True)
class AfterStep:
    """After each local step, x becomes x + `change`, for the first elements of the vector: as many as `change` has."""

    change: Tensor


@dataclass(frozen=True, slots=True)
class OnGradient:
    """The gradient g becomes g + `shift` + `pull` * (x - `center`) before the optimizer's step, for the first elements
    of the vector. None, or a `pull` of 0: no such term. FedProx: pull and center; SCAFFOLD as printed: shift; FedDyn:
    all three."""

    shift: Tensor | None = None
    pull: float = 0.0
    center: Tensor | None = None


Correction = AfterStep | OnGradient


@dataclass(frozen=True, slots=True)
class Steps:
    """The job of `count` local steps; 0: none, only bring the model. `taken`: earlier steps of the same round, whose
    samples and losses the update counts too; 0: a new round begins. `total`: all steps of the round, 0: not told.
    `step`: local steps of a peer in the run before these, for the learning rate; None: as many as this peer has taken.
    `halfway`: the update also carries the model after half of `count` steps. `correction`: applied in each step; None:
    none. `unfreeze`: names of frozen parameters that the replica trains from now on, and it may unfreeze others by
    itself (`Update.grown`); None: parameters that were frozen when the run began stay frozen. `only_read`: the
    conversation does not write to the update's vector, so the replica's model may lie in it until the next work."""

    count: int
    taken: int = 0
    total: int = 0
    step: int | None = None
    halfway: bool = False
    correction: Correction | None = None
    unfreeze: tuple[str, ...] | None = None
    only_read: bool = False


@dataclass(frozen=True, slots=True)
class Gradient:
    """The job of computing one gradient, without a step. The update may come while backward still fills its vector
    (`Update.filling`)."""


@dataclass(frozen=True, slots=True)
class Query:
    """The job of a task's statistical query over all data of one `partition`, from 0 to `partitions` - 1. The update's
    vector [k] holds the elements of its sums, one sum after another; its `loss` is the mean over the partition's
    samples, its `weight` their number. `of_loss`: the task's query is not called, and the vector is [n + 1]: the
    gradient of the samples' summed loss, then that loss."""

    partition: int
    partitions: int
    of_loss: bool = False


@dataclass(frozen=True, slots=True)
class Evaluate:
    """The job of computing the metrics of the model `vector` [n]. Training is not affected."""

    vector: Tensor


@dataclass(frozen=True, slots=True)
class Foresee:
    """The job of telling which rows of its tables the replica needs for its next `count` local steps (`Update.needed`),
    so that the next work can begin from these rows. The model does not change, and the work's `begin` is not
    applied."""

    count: int


Job = Steps | Gradient | Query | Evaluate | Foresee


@dataclass(frozen=True, slots=True)
class Work:
    """The next task of a replica: first `begin`, then `job`. If two works in a row have the same object as `begin`, it
    is applied once."""

    begin: Begin
    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The result of a work. `vector` [n]: the model (of `Evaluate` the one that it was given), or the gradient, or the
    sums [k] of a query; empty [0] of a `Foresee`. `weight`: the number of samples behind it, or of local steps where a
    script brings a model; `loss`: their mean loss, 0 without a step, NaN: not reported; `learning_rate`: the
    optimizer's; `steps`: local steps since the round began, 1 of a query; `seconds`: of this work alone, set by the
    training loop. `halfway` [n]: the model after half of the job's steps, rounded down; None: the job did not ask for
    it, or has fewer than 2 steps. `filling`: tracks a vector that is still being written; None: it is complete.
    `metrics`: the values of an evaluation, by name. `final`: the replica takes no more steps. `epochs`: passes over the
    data since the round began, with the fraction where the number of batches is known. `grown`: names of the parameters
    in `vector` that were frozen when the run began. `base`: by name, the values [k] that such a parameter had while it
    was frozen, for those that no work has listed as grown yet. `rows`: by table, the rows from which the work began, as
    they are now. `needed`: by table, the numbers [k] of the rows that a `Foresee` asks for, ascending and none
    twice."""

    vector: Tensor
    weight: float = 0.0
    loss: float = 0.0
    learning_rate: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    halfway: Tensor | None = None
    filling: Filling | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    final: bool = False
    epochs: float = 0.0
    grown: tuple[str, ...] = ()
    base: Mapping[str, Tensor] = field(default_factory=dict)
    rows: Mapping[str, Rows] = field(default_factory=dict)
    needed: Mapping[str, Tensor] = field(default_factory=dict)
