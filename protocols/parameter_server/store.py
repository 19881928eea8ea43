"""The store of one server: its copies of ranges, and how an entry changes them. It sends no messages and does not wait.

A range is a slice of the model's vector, or a block of rows of a table (`keys`). An entry is one change of a copy: an
update of its values, of a block's only those rows that were pushed, or only of its workers' clocks; it may also carry
an order of a coordinator, which changes the values. All copies of a range get the same entries in the same order, so
they have the same values to the bit. A copy's `version` counts the entries. Its `term` is the generation of the view in
which a chain of servers last settled on it (`takeover`).

Cost: the values and the server function's state of each range held. An update writes only into the rows pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...aggregation.lbfgs import Order
from ...aggregation.rows import INDEX, Rows
from ...aggregation.server.add import Add
from ...aggregation.server.function import ServerFunction, State
from ...aggregation.server.lbfgs import KeepLast, obeyed
from ...aggregation.server.showing import SHOWN, showing
from ...aggregation.vector import all_finite, norm_of
from ..collectives.bound import NORM_LIMIT
from ..transport import PeerId
from ..wire.schema import ITEMS_MAX
from .events import Entered, Took
from .keys import Keys, Model, Piece
from .messages import COORDINATOR, FOREVER
from .pieces import parted
from .recent import Recent, note
from .traffic import Traffic
from .wholes import Whole, joined_of, step, step_rows

NOTHING = 0
"""Stands for the standing and for the version of a range of which a server has no copy."""
CLOCKS_MAX = ITEMS_MAX // 2
"""The most clocks of workers, present or gone, with which a range begins a view: a message lists them all, and those of
workers that come in that view."""
_PAST_MAX = (1 << 31) - 2


def settled_at(term: int) -> int:
    """The standing of a copy on which a chain has settled in the term `term`."""
    return term << 31


def term_of(standing: int) -> int:
    """The term of a copy with that standing; 0: no chain of this run has settled on it."""
    return (standing + 1) >> 31


@dataclass(slots=True)
class Copy:
    """A copy of a range. `values` [m], or [rows, width] of a block; `state`: the state of the server function; `term`:
    generation of the view in which a chain last settled on the copy, 0: none has in this run. `past`: orders copies
    that no chain of this run has settled on, by the terms of the runs before it. `version`: the number of entries;
    `updates`: of those that applied pushes to the values. `clocks`: of each worker, or partition, that has ever taken
    part and was not forgotten since (`Store.forget`); `enlisted`: the workers that take part now. `restored`: the copy
    comes from a checkpoint, so it may be older than others of its term. `lent`: somebody else, such as the writer of a
    checkpoint, may still read these tensors, so no update writes into them. `whole`: of which these values are a part;
    None: of none. `recent`: the elements that the last updates have changed; None: it is not known. `former`: the term
    before, if this copy has all that was read in it, else 0."""

    values: Tensor
    state: State
    term: int = 0
    past: int = 0
    version: int = 0
    updates: int = 0
    clocks: dict[PeerId, int] = field(default_factory=dict)
    enlisted: set[PeerId] = field(default_factory=set)
    restored: bool = False
    lent: bool = False
    whole: Whole | None = None
    recent: Recent | None = None
    former: int = 0

    def is_like(self, other: Copy) -> bool:
        """Whether this copy and `other`, of another range, are alike but for their values: the same number of updates,
        the same clocks, the same workers taking part. One push or read can then treat both together."""
        return self.updates == other.updates and self.clocks == other.clocks and self.enlisted == other.enlisted

    @property
    def standing(self) -> int:
        """A number by which copies of a range are compared: the higher, the newer. Copies of a later term are higher, a
        restored copy is below the others of its term, and 0 is below all."""
        return settled_at(self.term) - self.restored if self.term else min(self.past, _PAST_MAX)

    @property
    def shown(self) -> Tensor:
        """The values that filtered pulls give."""
        return self.state.get(SHOWN, self.values)

    def pushed(self, clock: tuple[PeerId, int]) -> int:
        """The number of the push by which a worker comes to a clock, given as (worker, clock): the clock itself, or for
        FOREVER the number after that of its last push."""
        return clock[1] if clock[1] < FOREVER else min(1 + self.clocks.get(clock[0], 0), FOREVER)

    def counted(self) -> dict[PeerId, int]:
        """The clocks of the workers that take part and are going to take more steps, or of the partitions and the
        coordinator; 0 before a first push."""
        return {worker: clock for worker in sorted(self.enlisted) if (clock := self.clocks.get(worker, 0)) < FOREVER}


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of the copies of `ranges`, which ascend and are of one kind (`Keys.kind`): the server function applies
    `pushed`, which has the pieces of all of them (None: the values stay), and `clocks` are set. An entry without
    `pushed` may have ranges of several kinds. `joins`: the workers of `clocks` take part from now on. `order`: the
    coordinator's order, as numbers, which the ranges obey (`aggregation.lbfgs`); empty: none. `pushes`: (worker,
    number) of each push in `pushed`, for the checkers of a simulation."""

    ranges: tuple[int, ...]
    pushed: Piece | None
    clocks: Mapping[PeerId, int]
    joins: bool = False
    order: tuple[float, ...] = ()
    pushes: tuple[tuple[PeerId, int], ...] = ()


class Store:
    """One server's copies of the ranges of `keys`. `function` updates them; but to averaged buffers the pushed changes
    are added, and, if `coordinated`, a pushed loss replaces the former one. `partitions`: the names of those whose
    pushes make updates, instead of workers' own; empty: workers' own do. `coordinated`: a coordinator orders what
    follows each update (`orders`). `norm_limit`: without partitions, a push to a range may have a norm of at most this
    many times that of the values that it changes (or times 1, if that is more)."""

    def __init__(
        self,
        keys: Keys,
        function: ServerFunction,
        partitions: Sequence[str] = (),
        *,
        coordinated: bool = False,
        norm_limit: float = NORM_LIMIT,
    ) -> None:
        self.keys, self.partitions, self.coordinated = keys, tuple(partitions), coordinated
        self._norm_limit = norm_limit
        self.copies: dict[int, Copy] = {}
        self.traffic = Traffic(keys)
        self.reached = 0
        """The highest number of a push in this server's copies, as far as it was there, also in the runs before."""
        self.known = [NOTHING] * len(keys)
        """By range, the highest standing that a chain is known to have settled on."""
        self._of_rows, self._function = function, showing(function, keys.pulls)
        self._rest = KeepLast() if coordinated else Add()

    def function(self, range: int) -> ServerFunction:
        """The function that updates `range`, which has rows, averaged buffers, or parameters of the vector. It holds no
        state; that is in each copy (`Copy.state`)."""
        of_vector = self._rest if self.keys.is_buffer(range) else self._function
        return self._of_rows if range in self.keys.blocks else of_vector

    def create(self, range: int, initial: Model) -> Copy:
        """A new copy of `range`, with its values in the `initial` model. It is not put into `copies`."""
        values = self.keys.values(range, initial).to(self.keys.dtype, copy=True, memory_format=torch.contiguous_format)
        copy = Copy(values, self.function(range).start(values))
        self._enlist_partitions(copy)
        return copy

    def _enlist_partitions(self, copy: Copy) -> None:
        """Each partition takes part from the beginning, and has pushed to each of the copy's updates."""
        copy.clocks |= dict.fromkeys(self.partitions, copy.updates)
        if self.coordinated:
            copy.clocks[COORDINATOR] = copy.updates + 1
        copy.enlisted |= self.fixed

    @property
    def fixed(self) -> frozenset[str]:
        """The names that have a clock in every range although they are no workers: the partitions, and, if there is
        one, the coordinator. `forget` never removes them."""
        return frozenset((*self.partitions, COORDINATOR) if self.coordinated else self.partitions)

    def check(self, ranges: Sequence[int], values: Tensor, each: Callable[[], Sequence[Piece]]) -> None:
        """Raises ValueError if a push has numbers that are not finite. In a run without partitions, also if in any
        range its norm is beyond `norm_limit` times that of the values that it changes (or times 1, if that is more).
        `values` [m]: those of the pieces for all `ranges`, one behind the other; `each` returns these pieces."""
        if norm_of(values) <= self._norm_limit:
            return
        if not all_finite(values):
            raise ValueError("it has numbers that are not finite")
        for number, piece in zip(ranges, each(), strict=True) if not self.partitions else ():
            pushed, held = piece, self.copies[number].values
            if isinstance(piece, Rows):
                pushed, held = piece.values, held[piece.ids - self.keys.place(number)]
            assert isinstance(pushed, Tensor)
            norm, most = norm_of(pushed.reshape(-1)), self._norm_limit * max(1.0, norm_of(held.reshape(-1)))
            if norm > most:
                raise ValueError(f"its norm in range {number} is {norm:.3g}, beyond the {most:.3g} of --norm-limit")

    def forget(self, range: int, workers: Collection[PeerId]) -> None:
        """Remove clocks of a range until it has at most 2048 (`CLOCKS_MAX`), but none of the present `workers`: first
        those of workers that have ended, then those of workers that had pushed least."""
        clocks = self.copies[range].clocks
        gone = clocks.keys() - {*workers} - self.fixed
        order = sorted(gone, key=lambda one: (clocks[one] < FOREVER, clocks[one], one))
        for worker in order[: max(0, len(clocks) - CLOCKS_MAX)]:
            del clocks[worker]

    def clock(self, range: int, reader: PeerId) -> int:
        """The clock of the worker `reader` in a range: the number of its last push, 0 before the first, FOREVER after
        its end. In a run with partitions it is the number of completed steps, whichever the worker."""
        copy = self.copies[range]
        if self.coordinated:
            return copy.clocks[COORDINATOR] - 1
        return min(copy.counted().values()) if self.partitions else copy.clocks.get(reader, 0)

    def enter(self, entry: Entry) -> None:
        """Apply `entry` to this server's copies of the entry's ranges: the server function takes what was pushed,
        clocks are set, workers join, an order is obeyed. `version` grows by 1, `updates` too if values were pushed."""
        copies, pushed = [self.copies[number] for number in entry.ranges], entry.pushed
        if isinstance(pushed, Rows):
            counts, ids = self.keys.divided(entry.ranges, pushed.ids)
            step_rows(self.function(entry.ranges[0]), copies, counts, Rows(ids, pushed.values))
        elif pushed is not None:
            before = None if self.keys.pulls is None else joined_of(entry.ranges, self.copies, SHOWN)
            step(self.function(entry.ranges[0]), entry.ranges, self.copies, pushed)
            if before is not None:
                note(copies, before, joined_of(entry.ranges, self.copies, SHOWN))
        clocks, updates, joins, order = entry.clocks, int(pushed is not None), entry.joins, entry.order
        if pushed is not None:
            self.reached = max([self.reached, *map(copies[0].pushed, clocks.items())])
        for copy in copies:
            copy.clocks.update(clocks)
            copy.updates += updates
            copy.version += 1
            if joins:
                copy.enlisted |= clocks.keys()
            if order:
                copy.whole = None
                copy.values, copy.state = obeyed(copy.values, copy.state, Order.from_plain(order))

    def took(self, range: int, base: int) -> Took:
        """The event for a simulation's checkers that this server now holds its copy of `range`. `base`: see `Took`. The
        event keeps the copy's tensors: no update writes into them from now on."""
        copy = self.copies[range]
        copy.lent = True
        return Took(range, copy.term, base, copy.version, copy.values, dict(copy.clocks))

    def entered(self, entry: Entry) -> Iterator[Entered]:
        """After `enter`: for each range, the event for a simulation's checkers that `entry` was applied to its copy."""
        ranges, pushed, keys = entry.ranges, entry.pushed, self.keys
        pieces: Sequence[Piece | None] = [None] * len(ranges) if pushed is None else parted(keys, ranges, pushed)
        for number, piece in zip(ranges, pieces, strict=True):
            copy, rows, part = self.copies[number], None, None
            if isinstance(piece, Rows):
                rows = piece.ids - keys.place(number)
            elif number in keys.blocks:
                rows = torch.empty(0, dtype=INDEX)
            elif not keys.is_buffer(number):
                part = piece
            values = copy.values if rows is None else copy.values[rows]
            yield Entered(number, copy.term, copy.version, entry.pushes, values, copy.counted(), rows, part)

    def begin_anew(self) -> None:
        """Prepare restored copies for a new run: forget the clocks of all workers, and count the terms of the runs
        before in `past`, as no chain has settled on these copies in this run. If `coordinated`, also begin the updates
        and the function's state anew, from the present values."""
        for number, copy in self.copies.items():
            copy.past, copy.term = copy.past + copy.term, 0
            copy.clocks.clear()
            copy.enlisted.clear()
            if self.coordinated:  # the ranges are of different trials: begin anew from these values
                copy.updates, copy.state, copy.whole = 0, self.function(number).start(copy.values), None
            self._enlist_partitions(copy)

    def blank(self, range: int, names: Sequence[str]) -> Copy:
        """A copy of `range` of the right shapes, whose tensors and numbers are still to be set. `names`: of the state's
        tensors. Raises ValueError when these are not those of this range."""
        values = torch.zeros(self.keys.shape(range), dtype=self.keys.dtype)
        state = self.function(range).start(values)
        if list(names) != sorted(state):
            raise ValueError(f"its state has {', '.join(names) or 'nothing'}, due is {', '.join(sorted(state))}")
        return Copy(values, state)
