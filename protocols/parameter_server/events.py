"""The events of the parameter server, for the checkers of a simulation. A range is a slice of the model's vector, or a
block of rows of a table. Of a server's copy of it the `version` counts the changes, and the `term` is the generation of
the view in which its servers last agreed on it. A clock is the number of a worker's last push."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..transport import PeerId


@dataclass(frozen=True, slots=True)
class Took:
    """Event for a simulation's checkers: a server has begun to hold `values` ([m], or [rows, width] of a block) as its
    copy of `range` in the term `term`. `base`: the term of the copy that it was made from; 0: the initial model, or a
    copy from a run before."""

    range: int
    term: int
    base: int
    version: int
    values: Tensor
    clocks: dict[PeerId, int]


@dataclass(frozen=True, slots=True)
class Doubted:
    """Event for a simulation's checkers: the head of `range` goes on in the term `term` from an older copy than the
    `workers` of the view have told of."""

    range: int
    term: int
    workers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Entered:
    """Event for a simulation's checkers: a server has applied the entry that leads to `version` of `range`; `values`
    are the result: [m] (`rows` None), or [k, width] of a block's `rows` [k], the only ones that the entry has changed.
    `pushes`: (worker, number) of each push in the entry, known to the head alone and empty elsewhere. `counted`: the
    clocks of the workers that take part. `pushed`: what the server function has applied to all values of the range [m];
    None: nothing, or only to some rows, or these are averaged buffers."""

    range: int
    term: int
    version: int
    pushes: tuple[tuple[PeerId, int], ...]
    values: Tensor
    counted: dict[PeerId, int]
    rows: Tensor | None = None
    pushed: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Event for a simulation's checkers: the head has told `worker`, which may be a partition's name, that all copies
    of `range` have its push with number `seq`, or an update that was made without it (backup workers). `late`: where
    the answer has values, the worker for whose push these have waited, as it tells; "": for none. None: it has none."""

    range: int
    worker: PeerId
    seq: int
    late: PeerId | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Event for a simulation's checkers: a server answers `reader` a read of `range` at `clock`. `counted`: the clocks
    in the range of the workers that take part."""

    range: int
    reader: PeerId
    clock: int
    counted: dict[PeerId, int]


@dataclass(frozen=True, slots=True)
class Showed:
    """Event for a simulation's checkers: a server answers `reader` a filtered read of `range`, of the values `shown`
    after so many `updates`, where the exact ones are `values`; both [m], or [rows, width] of a block."""

    range: int
    reader: PeerId
    updates: int
    shown: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Holds:
    """Event for a simulation's checkers: the worker `reader` has read the vector's `range` by a filtered pull, and
    holds these `values` [m] after so many `updates` of it."""

    range: int
    reader: PeerId
    updates: int
    values: Tensor


@dataclass(frozen=True, slots=True)
class Sifted:
    """Event for a simulation's checkers: a worker's filters have made `sent` of the trained elements `pushed` of its
    push number `seq` and of those that were `owed` before, and keep `left` for later; all [m]. None: nothing is owed or
    left."""

    seq: int
    pushed: Tensor
    owed: Tensor | None
    sent: Tensor
    left: Tensor | None


@dataclass(frozen=True, slots=True)
class Trains:
    """Event for a simulation's checkers: a worker with the clock `clock` takes its next local steps from `model` [n],
    in an algorithm that is not of map and reduce."""

    clock: int
    model: Tensor


@dataclass(frozen=True, slots=True)
class Shares:
    """Event for a simulation's checkers: a worker goes on in the memory that all workers of the view `epoch` share.
    `secret`: the bytes that identify the memory."""

    epoch: int
    secret: bytes


@dataclass(frozen=True, slots=True)
class Handled:
    """Event for a simulation's checkers: a server handles a message of `sender` about ranges of the present view."""

    sender: PeerId
