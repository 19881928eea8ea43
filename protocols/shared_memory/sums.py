"""Sums in shared memory: the sharded schedule in place, bit for bit, without a message.

    vector -> own slot; wait for all; each sums its part over all slots into the result; wait for all; everyone reads it

A small vector takes one wait: each sums all of it for itself, from slots that alternate by turns.
Cost, each of p peers: n bytes copied, n bytes read and n/p written to reduce, and no message at all.
On loss or death somebody's flag is never raised: the caller is cancelled by a change of the view. On lateness all wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...aggregation.vector import parts
from ..meter import Meter
from ..offload import off_loop
from ..transport import PeerId
from .ordered_sum import sum_all, sum_part
from .segment import Flags, Segment

SMALL_BYTES = 64 * 1024
"""Up to here everybody sums everything."""
_LOOKS, _LOOKS_A_TURN = 400, 20
_NAP_S = 0.001
_PAGE = 4096


def bytes_for(count: int, dtype: torch.dtype, world: int) -> int:
    """How much shared memory sums of `count` elements take: a slot for each and the result; small ones two slots."""
    return 2 * world * SMALL_BYTES + (world + 1) * _whole_pages(count * dtype.itemsize)


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


class Sums:
    """One rank's part in the sums of vectors of one length that `world` peers make in `segment`."""

    def __init__(
        self, segment: Segment, members: Sequence[PeerId], rank: int, count: int, dtype: torch.dtype, meter: Meter
    ) -> None:
        self.rank, self.count, self.dtype, self._segment, self._meter = rank, count, dtype, segment, meter
        self._members, world = members, len(members)
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        small = count * dtype.itemsize <= SMALL_BYTES
        start, step = (0, SMALL_BYTES) if small else (2 * world * SMALL_BYTES, _whole_pages(count * dtype.itemsize))
        slots = 2 * world if small else world + 1
        arrays = [torch.from_numpy(segment.array(kind, start + step * number, count)) for number in range(slots)]
        self._turns = [arrays[:world], arrays[world:]] if small else [arrays[:world]]
        self._result = None if small else arrays[world]
        self._in, self._done, self._have = segment.flags[:, :world]

    def are_of(self, segment: Segment, count: int, dtype: torch.dtype) -> bool:
        """Whether these are sums of such vectors in that segment."""
        return self._segment is segment and (self.count, self.dtype) == (count, dtype)

    @property
    def moved_bytes(self) -> int:
        """What this rank writes for the others in a turn, and reads of what they have written."""
        world, whole = len(self._turns[0]), self.count * self.dtype.itemsize
        if self._result is None:
            return world * whole
        start, stop = parts(self.count, world)[self.rank]
        return 2 * whole + (world - 1) * (stop - start) * self.dtype.itemsize

    def slot(self, turn: int) -> Tensor:
        """Where this rank's vector of that turn is to be; written to by this rank alone, once all had the last sum."""
        return self._turns[turn % len(self._turns)][self.rank]

    async def run(self, vector: Tensor, turn: int) -> Tensor:
        """The sum over all, the same bits on each. `turn`: a number that rises with each sum, the same for all. The
        result may be in shared memory: it holds until this rank brings the next vector."""
        slots = self._turns[turn % len(self._turns)]
        mine = slots[self.rank]
        # Who was interrupted and comes back to the same turn must not touch what the others go on with.
        if self._in[self.rank] < turn:
            if vector.data_ptr() != mine.data_ptr():
                await off_loop(vector.nbytes, lambda: mine.copy_(vector.detach()))
            self._in[self.rank] = turn
        await self._all_are_in(turn)
        if self._result is None:
            return sum_all(slots)
        result = self._result
        if self._done[self.rank] < turn:
            await off_loop(vector.nbytes, lambda: sum_part(slots, self.rank, result))
            self._done[self.rank] = turn
        await _until(self._done, turn)
        return result

    async def _all_are_in(self, turn: int) -> None:
        def late() -> list[PeerId]:
            return [member for member, at in zip(self._members, self._in.tolist(), strict=True) if at < turn]

        with self._meter.standing(late):
            await _until(self._in, turn, self._meter.read)

    async def all_have(self, turn: int) -> None:
        """Say that this rank keeps the result of that turn, and wait until all have said so."""
        self._have[self.rank] = turn
        await _until(self._have, turn)


async def _until(flags: Flags, turn: int, woken: Callable[[], None] = lambda: None) -> None:
    """Wait until all flags have come to `turn`: first looking and letting others on, then in naps, as a straggler may
    take seconds; `woken` is called after each."""
    looks = 0
    while min(flags.tolist()) < turn:
        looks += 1
        if looks > _LOOKS:
            await asyncio.sleep(_NAP_S)
            woken()
        elif looks % _LOOKS_A_TURN == 0:
            await asyncio.sleep(0)
        else:
            os.sched_yield()
