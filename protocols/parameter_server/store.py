"""The store of one server: its copies of ranges of the model's vector, and how an entry changes them. It sends no
messages and does not wait.

An entry is one change of a copy: an update of its values, or only of its workers' clocks. All copies of a range get the
same entries in the same order, so they have the same values to the bit. A copy's `version` counts the entries. Its
`term` is the generation of the view in which a chain of servers last settled on it (`takeover`).

Cost: the values and the server function's state of each range held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...aggregation.lbfgs import Order
from ...aggregation.server.add import Add
from ...aggregation.server.function import ServerFunction, State
from ...aggregation.server.lbfgs import KeepLast, obeyed
from ...aggregation.vector import Part
from ..transport import PeerId
from ..wire.frames import Buffer
from .messages import COORDINATOR, FOREVER, Entered, Took

NOTHING = 0
"""Stands for the standing and for the version of a range of which a server has no copy."""


_PAST_MAX = (1 << 31) - 2


def settled_at(term: int) -> int:
    """The standing of a copy on which a chain has settled in the term `term`."""
    return term << 31


def term_of(standing: int) -> int:
    """The term of a copy with that standing; 0: no chain of this run has settled on it."""
    return (standing + 1) >> 31


@dataclass(slots=True)
class Copy:
    """A copy of a range. `values` [m]; `state`: of the server function; `term`: generation of the view in which a chain
    last settled on the copy, 0: none has in this run. `past`: orders copies that no chain of this run has settled on,
    by the terms of the runs before it. `version`: the number of entries; `updates`: of those that changed the values.
    `clocks`: of each worker that has ever taken part; `enlisted`: the workers that take part now. `restored`: the copy
    comes from a checkpoint, so it may be older than others of its term."""

    values: Tensor
    state: State
    term: int = 0
    past: int = 0
    version: int = 0
    updates: int = 0
    clocks: dict[PeerId, int] = field(default_factory=dict)
    enlisted: set[PeerId] = field(default_factory=set)
    restored: bool = False

    @property
    def standing(self) -> int:
        """A number by which copies of a range are compared: the higher, the newer. Copies of a later term are higher, a
        restored copy is below the others of its term, and 0 is below all."""
        return settled_at(self.term) - self.restored if self.term else min(self.past, _PAST_MAX)

    def counted(self) -> dict[PeerId, int]:
        """The clocks of the workers that take part and are going to take more steps."""
        return {worker: clock for worker in sorted(self.enlisted) if (clock := self.clocks.get(worker, 0)) < FOREVER}


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of the copies of a range: the server function applies `pushed` [m] (None: the values stay), and
    `clocks` are set. `joins`: the workers of `clocks` take part from now on. `order`: of the coordinator, which the
    range obeys (`aggregation.lbfgs`); empty: none. `pushes`: (worker, number) of each push in `pushed`, for the
    checkers of a simulation."""

    range: int
    pushed: Tensor | None
    clocks: Mapping[PeerId, int]
    joins: bool = False
    order: tuple[float, ...] = ()
    pushes: tuple[tuple[PeerId, int], ...] = ()


class Store:
    """One server's copies. `ranges`: of the whole vector. `function` updates its first `parameters` elements; the
    others, averaged buffers, are updated by adding the pushed changes. `partitions`: the names of those whose pushes
    make updates, instead of workers' own; empty: workers' own do. `coordinated`: a
    coordinator orders what follows each update (`orders`)."""

    def __init__(
        self,
        ranges: Sequence[Part],
        dtype: torch.dtype,
        parameters: int,
        function: ServerFunction,
        partitions: Sequence[str] = (),
        *,
        coordinated: bool = False,
    ) -> None:
        self.ranges, self.dtype, self.partitions = tuple(ranges), dtype, tuple(partitions)
        self.copies: dict[int, Copy] = {}
        self.known = [NOTHING] * len(ranges)
        """By range, the highest standing that a chain is known to have settled on."""
        self.coordinated, self._parameters = coordinated, parameters
        self._function, self._add = function, KeepLast() if coordinated else Add()

    def function(self, range: int) -> ServerFunction:
        """The server function of a range."""
        return self._add if self.is_buffer(range) else self._function

    def is_buffer(self, range: int) -> bool:
        """Whether a range holds averaged buffers, which local steps do not train."""
        return self.ranges[range].start >= self._parameters

    def size(self, range: int) -> int:
        """The elements of a range."""
        return self.ranges[range].stop - self.ranges[range].start

    def create(self, range: int, values: Tensor) -> Copy:
        """A copy of a new range. `values` [m] are cloned."""
        copy = Copy(values.clone(), self.function(range).start(values))
        self._enlist_partitions(copy)
        return copy

    def _enlist_partitions(self, copy: Copy) -> None:
        """Each partition takes part in `copy` from the beginning, and has pushed to each of its updates."""
        copy.clocks |= dict.fromkeys(self.partitions, copy.updates)
        if self.coordinated:
            copy.clocks[COORDINATOR] = copy.updates + 1
        copy.enlisted |= self.fixed

    @property
    def fixed(self) -> frozenset[str]:
        """The names that take part in each range, whichever workers there are."""
        return frozenset((*self.partitions, COORDINATOR) if self.coordinated else self.partitions)

    def clock(self, range: int, reader: PeerId) -> int:
        """The clock of a worker in a range: the number of its last push, or, with partitions, that of the steps that
        are done."""
        copy = self.copies[range]
        if self.coordinated:
            return copy.clocks[COORDINATOR] - 1
        return min(copy.counted().values()) if self.partitions else copy.clocks.get(reader, 0)

    def enter(self, entry: Entry) -> Copy:
        """Apply `entry` to this server's copy of its range, and return the copy."""
        copy = self.copies[entry.range]
        if entry.pushed is not None:
            copy.values, copy.state = self.function(entry.range).step(copy.values, entry.pushed, copy.state)
            copy.updates += 1
        if entry.order:
            copy.values, copy.state = obeyed(copy.values, copy.state, Order.from_plain(entry.order))
        copy.clocks.update(entry.clocks)
        if entry.joins:
            copy.enlisted |= entry.clocks.keys()
        copy.version += 1
        return copy

    def took(self, range: int, base: int) -> Took:
        """The event that this server now holds its copy of `range`. `base`: the term of the copy that it was made
        from."""
        copy = self.copies[range]
        return Took(range, copy.term, base, copy.version, copy.values, dict(copy.clocks))

    def entered(self, entry: Entry) -> Entered:
        """The event that `entry` was applied to this server's copy."""
        copy = self.copies[entry.range]
        return Entered(entry.range, copy.term, copy.version, entry.pushes, copy.values, copy.counted())

    def begin_anew(self) -> None:
        """Prepare restored copies for a new run: no worker has pushed in it yet, and no chain has settled on these
        copies."""
        for number, copy in self.copies.items():
            copy.past, copy.term = copy.past + copy.term, 0
            copy.clocks.clear()
            copy.enlisted.clear()
            if self.coordinated:  # the ranges are of different trials: begin anew from these values
                copy.updates, copy.state = 0, self.function(number).start(copy.values)
            self._enlist_partitions(copy)

    def packed(self, copy: Copy) -> Buffer:
        """Returns the values of a copy, and then the tensors of its server function's state in the order of their
        names, as raw bytes. Names, version and clocks are not among them: the message's header has these."""
        return raw([copy.values, *(copy.state[name] for name in sorted(copy.state))])

    def unpacked(self, range: int, names: Sequence[str], payload: Buffer) -> Copy:
        """The copy of `range` whose values and state `packed` wrote into `payload`; its numbers are still to be set.
        `names`: of the state's tensors. Raises ValueError when names or length are not those of this range."""
        values = torch.empty(self.size(range), dtype=self.dtype)
        shapes = self.function(range).start(values)
        if list(names) != sorted(shapes):
            raise ValueError(f"its state has {', '.join(names) or 'nothing'}, due is {', '.join(sorted(shapes))}")
        tensors = [values, *(torch.empty_like(shapes[name]) for name in names)]
        if len(payload) != sum(tensor.nbytes for tensor in tensors):
            raise ValueError(f"it has {len(payload)} bytes, due are {sum(tensor.nbytes for tensor in tensors)}")
        at = 0
        for tensor in tensors:
            tensor.reshape(-1).copy_(of_bytes(memoryview(payload)[at : at + tensor.nbytes], self.dtype))
            at += tensor.nbytes
        return Copy(values, dict(zip(names, tensors[1:], strict=True)))


def raw(tensors: Sequence[Tensor]) -> Buffer:
    """The elements of these CPU tensors, one tensor after another, as bytes. Those of a single tensor are not copied:
    it must not change any more."""
    buffers = [one.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data for one in tensors]
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)


def of_bytes(payload: Buffer, dtype: torch.dtype) -> Tensor:
    """The elements [m] that `raw` wrote. The tensor may share the memory of `payload`, so nobody may write into it."""
    if not len(payload):
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(payload) if memoryview(payload).readonly else payload, dtype=dtype)
