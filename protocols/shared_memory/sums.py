"""Sums in shared memory: the sharded schedule in place, with the same bits, without a message.

    copy the vector to the own slot; wait for all; sum the own part over all slots into the result; wait for all; read

For a small vector the ranks wait once: each sums all of it for itself, from slots that alternate from sum to sum.
Cost, each of p peers: n bytes copied, n bytes read and n/p written to reduce, and no message at all.
On failure: a dead rank never raises its flag, and a change of the view cancels the caller. All ranks wait for a late
one.
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
"""The most bytes of a vector that every rank sums as a whole for itself."""
_LOOKS, _LOOKS_A_YIELD = 400, 20
_NAP_S = 0.001
_PAGE = 4096


def bytes_for(count: int, dtype: torch.dtype, world: int) -> int:
    """The bytes of shared memory for sums of `count` elements over `world` ranks: two slots of 64 KiB for each rank,
    for small vectors, and behind these a slot for each rank and the result, in whole pages."""
    return 2 * world * SMALL_BYTES + (world + 1) * _whole_pages(count * dtype.itemsize)


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


class Sums:
    """One rank's side of the sums of vectors of `count` elements that the `members` make in `segment`, which has
    `bytes_for` of these. `meter` counts the time for which a sum is stalled. One sum is made after another."""

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
        self._slots = [arrays[:world], arrays[world:]] if small else [arrays[:world]]
        self._result = None if small else arrays[world]
        self._in, self._done, self._have = segment.flags[:, :world]

    def are_of(self, segment: Segment, count: int, dtype: torch.dtype) -> bool:
        """Whether these are sums of vectors [count] of that dtype in that segment."""
        return self._segment is segment and (self.count, self.dtype) == (count, dtype)

    @property
    def moved_bytes(self) -> int:
        """Bytes that this rank writes and reads in one sum."""
        world, whole = len(self._slots[0]), self.count * self.dtype.itemsize
        if self._result is None:
            return world * whole
        start, stop = parts(self.count, world)[self.rank]
        return 2 * whole + (world - 1) * (stop - start) * self.dtype.itemsize

    def slot(self, number: int) -> Tensor:
        """The slot [n] for this rank's vector in the sum with that number. Only this rank writes to it, and only once
        it has the result of the sum before: then no rank reads the slot any more."""
        return self._slots[number % len(self._slots)][self.rank]

    async def run(self, vector: Tensor, number: int) -> Tensor:
        """The sum [n] of all ranks' vectors, the same bits on each. `number`: of this sum, the same on all ranks,
        greater by 1 than the last, or by more after `all_have`. Waits, without limit, until all ranks have brought
        their vectors. The result may lie in shared memory: it is valid until this rank begins its next sum."""
        slots = self._slots[number % len(self._slots)]
        mine = slots[self.rank]
        # After an interruption this rank may run the same sum again: it must not overwrite what the others read.
        if self._in[self.rank] < number:
            if vector.data_ptr() != mine.data_ptr():
                await off_loop(vector.nbytes, lambda: mine.copy_(vector.detach()))
            self._in[self.rank] = number
        await self._all_are_in(number)
        if self._result is None:
            return sum_all(slots)
        result = self._result
        if self._done[self.rank] < number:
            await off_loop(vector.nbytes, lambda: sum_part(slots, self.rank, result))
            self._done[self.rank] = number
        await _until(self._done, number)
        return result

    async def _all_are_in(self, number: int) -> None:
        def late() -> list[PeerId]:
            return [member for member, at in zip(self._members, self._in.tolist(), strict=True) if at < number]

        with self._meter.stalled_sum(late):
            await _until(self._in, number, self._meter.read)

    async def all_have(self, number: int) -> None:
        """Tell the other ranks that this one has the result of the sum with that number, and of all before, and wait
        until all ranks have told so. `number` may be above that of the last sum."""
        self._have[self.rank] = number
        await _until(self._have, number)


async def _until(flags: Flags, number: int, woken: Callable[[], None] = lambda: None) -> None:
    """Wait until all flags have reached `number`: by polling at first, then in short sleeps, because a straggler may
    take seconds. `woken` is called after each sleep."""
    looks = 0
    while min(flags.tolist()) < number:
        looks += 1
        if looks > _LOOKS:
            await asyncio.sleep(_NAP_S)
            woken()
        elif looks % _LOOKS_A_YIELD == 0:
            await asyncio.sleep(0)
        else:
            os.sched_yield()
