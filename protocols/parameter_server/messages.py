"""The messages of the parameter server, and its events for the checkers of a simulation.

All are of one view: `epoch` is its generation. A server answers a message of a former view with its refusal, and keeps
one of a later view until it has that view. Values travel as the raw elements of the model's vector, range after range.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, message

PARAMETER_SERVER = "parameter_server"
"""The family of these messages, and the name of their channel."""
FOREVER = 1 << 62
"""The clock of a worker that takes no more steps: nobody waits for it."""

_data = message(PARAMETER_SERVER, lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
_control = message(PARAMETER_SERVER)


@_control
@dataclass(frozen=True, slots=True)
class Enlist:
    """The sender takes part from `clock` on, or from a later clock that the server gives. To the heads of `ranges`."""

    ask: int
    epoch: int
    clock: int
    ranges: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Enlisted:
    """The answer to Enlist: the sender's clock in each of the ranges, and its clock `before`."""

    ask: int
    clocks: tuple[int, ...]
    before: tuple[int, ...]


@_data
@dataclass(frozen=True, slots=True)
class Push:
    """Payload: the push with number `seq` of the sender for each of the `ranges`. `read`: the updates of each range in
    the values that the sender had pulled. `last`: the sender takes no more steps. To the heads of `ranges`."""

    ask: int
    epoch: int
    seq: int
    ranges: tuple[int, ...]
    read: tuple[int, ...]
    last: bool


@_control
@dataclass(frozen=True, slots=True)
class Pushed:
    """The answer to Push: all copies of its ranges have it. `clocks`: the sender's in each of them."""

    ask: int
    clocks: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Early:
    """The answer to a Push that came before an earlier one of its sender. `clocks`: as of Pushed."""

    ask: int
    clocks: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Pull:
    """Asks for the values of `ranges`, as a read at `clock` needs them (`aggregation.consistency`). To their tails."""

    ask: int
    epoch: int
    clock: int
    ranges: tuple[int, ...]


@_data
@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to Pull. Payload: the values of its ranges. `updates`: of each range; `clocks`: the receiver's in
    each; `late`: the worker whose push was the last to arrive, "" if all was there."""

    ask: int
    updates: tuple[int, ...]
    clocks: tuple[int, ...]
    late: str


@_control
@dataclass(frozen=True, slots=True)
class NotTaken:
    """The answer to a question that can never be answered: `why`. `lost`: because all copies of a range are gone."""

    ask: int
    why: str
    lost: bool


@_data
@dataclass(frozen=True, slots=True)
class Apply:
    """From a server to its successor in the chain of `ranges`: the entries that lead to `versions`. An entry sets the
    clocks of `workers`; `clocks` has those of the first range, then those of the next. `joins`: the
    workers count from now on. Payload: what is applied to each range; without one, only clocks change."""

    ask: int
    epoch: int
    ranges: tuple[int, ...]
    versions: tuple[int, ...]
    workers: tuple[str, ...]
    clocks: tuple[int, ...]
    joins: bool


@_control
@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to Apply: the receiver and all servers behind it have the entries."""

    ask: int


@_control
@dataclass(frozen=True, slots=True)
class Survey:
    """Asks a server what it holds, and a worker what it knows."""

    ask: int
    epoch: int


@_control
@dataclass(frozen=True, slots=True)
class Holdings:
    """The answer to Survey, by range: the `standings` and `versions` of a server's copies, 0 where it has none, and the
    highest standing that the sender `knows` a chain to have settled on."""

    ask: int
    standings: tuple[int, ...]
    versions: tuple[int, ...]
    knows: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks a server for its copy of a range."""

    ask: int
    epoch: int
    range: int


@_data
@dataclass(frozen=True, slots=True)
class Copied:
    """The answer to Fetch. Payload: the values, then the tensors of the server function's state in the order of
    `names`."""

    ask: int
    past: int
    version: int
    updates: int
    workers: tuple[str, ...]
    clocks: tuple[int, ...]
    enlisted: tuple[str, ...]
    names: tuple[str, ...]


@_data
@dataclass(frozen=True, slots=True)
class Install:
    """From the head of a range to a server of its chain: from now on its copy is this one, which went on
    from the term `base`. Payload as of Copied; `same`: there is none, the receiver has it."""

    ask: int
    epoch: int
    range: int
    base: int
    past: int
    version: int
    updates: int
    workers: tuple[str, ...]
    clocks: tuple[int, ...]
    enlisted: tuple[str, ...]
    names: tuple[str, ...]
    same: bool


@_control
@dataclass(frozen=True, slots=True)
class Installed:
    """The answer to Install."""

    ask: int


@_control
@dataclass(frozen=True, slots=True)
class Settled:
    """From the head of `ranges` to all servers: their chains have settled. A server of no such chain drops its copy."""

    epoch: int
    ranges: tuple[int, ...]


# Events


@dataclass(frozen=True, slots=True)
class Took:
    """A server's copy of `range` holds the `values` from now on: of the term `term`, which went on from `base` (a term;
    0: from the initial model)."""

    range: int
    term: int
    base: int
    version: int
    values: Tensor
    clocks: dict[PeerId, int]


@dataclass(frozen=True, slots=True)
class Entered:
    """A server's copy of `range` has the entry that leads to `version`: the `pushes` (worker, number) were applied; the
    head alone tells which. `counted`: the clocks of the workers that count."""

    range: int
    term: int
    version: int
    pushes: tuple[tuple[PeerId, int], ...]
    values: Tensor
    counted: dict[PeerId, int]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The head has told `worker` that all copies of `range` have its push."""

    range: int
    worker: PeerId
    seq: int


@dataclass(frozen=True, slots=True)
class Read:
    """`reader` has got the values of `range` for a read at `clock`. `counted`: as of Entered, for this range."""

    range: int
    reader: PeerId
    clock: int
    counted: dict[PeerId, int]
