"""The messages of the parameter server.

A range is a slice of the model's vector, or a block of rows of a table; a chain the servers that hold copies of it,
head first and tail last. A worker's clock is the number of its last push. `ask` is the number by which an answer finds
its question. All messages are of one view: `epoch` is its generation. A server refuses a message of a former view, and
keeps one of a later view until it has that view. Values travel as raw elements, range after range; of a block only some
rows, whose numbers go before all values (`pieces`). `rows`: by range, how many rows there are; 0 for a range of the
vector, in a Push also another number (`sparse`). `parcel`: the number of the payload on the sender's board
(`parcels`), 0: it is in the message.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, message

PARAMETER_SERVER = "parameter_server"
"""The family of these messages, and the name of their channel."""
FOREVER = 1 << 62
"""The clock of a worker that takes no more steps: no read and no update waits for its pushes."""

COORDINATOR = "coordinator"
"""The name under which ranges count the orders of a coordinator: its clock is 1 + their number."""

_data = message(PARAMETER_SERVER, lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
_control = message(PARAMETER_SERVER)


@_control
@dataclass(frozen=True, slots=True)
class Enlist:
    """From a worker to the heads of `ranges`: it takes part from `clock` on, or from a later clock that the head gives
    it. `clock` FOREVER: it takes no more steps. `resumed`: the run begins again, and `clock` is that of the worker's
    checkpoint."""

    ask: int
    epoch: int
    clock: int
    ranges: tuple[int, ...]
    resumed: bool = False


@_control
@dataclass(frozen=True, slots=True)
class Enlisted:
    """The answer to Enlist, by range: the worker's clock now (`clocks`), and its clock `before` it was enlisted."""

    ask: int
    clocks: tuple[int, ...]
    before: tuple[int, ...]


@_data
@dataclass(frozen=True, slots=True)
class Push:
    """From a worker to the heads of `ranges`. Payload: its push with number `seq`, for each of the ranges. `read`: by
    range, the number of updates in the values that the worker had pulled. `last`: the worker takes no more steps.
    `of`: 1 + the number of the partition that the push counts for (`partitions`); 0: it counts for the worker. `reads`:
    the worker also asks for the values of the ranges that a read at clock `seq` may see, but for no rows. Where the run
    filters pulls, the answer is filtered, and the worker holds the values that it has `read`, pulled in the view
    `term` (as in Pull). `rest`: it is of no step, and has what the worker's filters kept back of former ones."""

    ask: int
    epoch: int
    seq: int
    ranges: tuple[int, ...]
    rows: tuple[int, ...]
    read: tuple[int, ...]
    last: bool
    of: int
    reads: bool
    parcel: int
    term: int = 0
    rest: bool = False


@_control
@dataclass(frozen=True, slots=True)
class Pushed:
    """The answer to a Push that does not read: all copies of its ranges have it, or an update that was made without it
    (backup workers). `clocks`: the worker's clock, or its partition's, in each of the ranges."""

    ask: int
    clocks: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Early:
    """The answer to a Push that arrived before an earlier push of the same worker: it was not taken. `clocks`: as in
    Pushed."""

    ask: int
    clocks: tuple[int, ...]


@_data
@dataclass(frozen=True, slots=True)
class Pull:
    """From a worker to the tails of `ranges`: asks for values that a read at `clock` may see
    (`aggregation.consistency`). Payload: the numbers of the rows that it asks for. `held`: by range, 1 + the number of
    updates in the values that the worker holds from an earlier pull, 0: it holds none; the answer is filtered
    (`patches`). Empty: it is not. `term`: the view in which the worker pulled what it holds, of several the first; a
    server that does not go on from the values of that view sends all."""

    ask: int
    epoch: int
    clock: int
    ranges: tuple[int, ...]
    rows: tuple[int, ...]
    held: tuple[int, ...] = ()
    term: int = 0


@_data
@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to Pull, and to a Push that reads, where it also stands for Pushed. Payload: the values of the ranges
    and rows that were asked for, without the numbers of rows; of a filtered answer a patch of them (`patches`). By
    range: the number of `updates` so far, and the asking worker's `clocks`; of a filtered answer the `forms` of the
    values, else none. `late`: the worker for whose push the server waited last; "": it waited for none."""

    ask: int
    updates: tuple[int, ...]
    clocks: tuple[int, ...]
    forms: tuple[int, ...]
    late: str
    parcel: int


@_control
@dataclass(frozen=True, slots=True)
class NotTaken:
    """The answer to a question that will never be answered otherwise; `why`: the reason. `lost`: all copies of a range
    are gone; else the question was wrong."""

    ask: int
    why: str
    lost: bool


@_data
@dataclass(frozen=True, slots=True)
class Apply:
    """From a server to the next one in the chain of `ranges`: one entry, which is a change of values or clocks, for
    each range. `versions`: of each range after its entry. Each entry sets the clocks of `workers`: `clocks` has those
    of the first range, then those of the next. `joins`: the workers take part from now on. `updates`: the payload is
    what the server function applies to each range; else there is none, and the entries change clocks, and values only
    by an `order`. `order`: the coordinator's order, as numbers; empty: none."""

    ask: int
    epoch: int
    ranges: tuple[int, ...]
    rows: tuple[int, ...]
    versions: tuple[int, ...]
    workers: tuple[str, ...]
    clocks: tuple[int, ...]
    joins: bool
    updates: bool
    order: tuple[float, ...]


@_control
@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to Apply: the answering server and all servers behind it in the chain have the entries."""

    ask: int


@_control
@dataclass(frozen=True, slots=True)
class Survey:
    """From a server to all other members of a new view: asks a server which copies it holds, and a worker which chains
    it knows to have settled."""

    ask: int
    epoch: int


@_control
@dataclass(frozen=True, slots=True)
class Holdings:
    """The answer to Survey, by range: `standings`, which order copies by age (`store.Copy.standing`), and `versions` of
    the sender's copies, 0 where it has none; and in `knows` the highest standing of a copy on which, to the sender's
    knowledge, a chain has settled."""

    ask: int
    standings: tuple[int, ...]
    versions: tuple[int, ...]
    knows: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Fetch:
    """From the head of a range to another server: asks for its copy of the range, from byte `at` on."""

    ask: int
    epoch: int
    range: int
    at: int


@_data
@dataclass(frozen=True, slots=True)
class Copied:
    """The answer to Fetch: a copy, whose numbers are those of `store.Copy`. `clocks` are those of `workers`. Payload:
    from the place that was asked for, as many bytes as a message takes of the values, followed by the tensors of the
    server function's state in the order of `names`."""

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
    """From the head of a range to a server of its chain: have this copy from now on, whose numbers are those of
    `store.Copy`. `base`: the term of the copy that it was made from. Payload as in Copied, from byte `at` on; the
    messages of one copy come in the order of their bytes. `same`: there is no payload, because the receiver has these
    values already."""

    ask: int
    epoch: int
    range: int
    at: int
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
    """The answer to Install: the server has the copy, or its bytes so far."""

    ask: int


@_control
@dataclass(frozen=True, slots=True)
class Settled:
    """From the head of `ranges` to all other servers: all servers of their chains have the head's copies. A server that
    is not in the chain of one of these ranges drops its copy of that range."""

    epoch: int
    ranges: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Lost:
    """From the head of `ranges` to all other servers: no copy of these ranges is left that it may go on from, and the
    head waits no longer for one."""

    epoch: int
    ranges: tuple[int, ...]
