"""Allreduce: one executor for any schedule (`aggregation.schedules`), so that all end with the same sum, bit by bit.

Each run's chunks, sized to the link, go out as soon as what they carry is complete, and are added or copied as they
arrive: reduce-scatter and all-gather overlap, and a tree is a pipeline. Sums are added up in the schedule's order,
whatever comes first. One task for each peer that is sent to, one for each that is heard: every wait is for something
earlier in the schedule, so that no credit is too small and "everybody sends, then everybody receives" cannot happen.
Cost: the schedule's. On loss, lateness or death of a peer nothing is returned and the caller's vector is untouched:
the caller cancels, and starts again among the survivors in a new generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...aggregation.schedules.schedule import Op, Schedule
from ..delivery.link import PeerLost
from ..endpoint import Endpoint, Envelope
from ..rounds import Key
from ..transport import PeerId
from ..wire import Buffer
from .chunks import Chunk, Inbox
from .plan import Run, Value, plan_of

Array = npt.NDArray[np.floating[Any]]


class Allreduce:
    """One attempt at summing a vector over `members` (in rank order) by `schedule`."""

    def __init__(
        self, endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], schedule: Schedule, key: Key
    ) -> None:
        self._endpoint, self._inbox, self._members, self._key = endpoint, inbox, members, key
        self._schedule: Value = schedule
        self._rank = members.index(endpoint.id)

    async def run(self, vector: Tensor) -> Tensor:
        """The sum over all members, the same bits on each. Raises PeerLost, also for one who breaks the schedule."""
        plan = plan_of(self._schedule, self._rank, len(self._members), vector.numel())
        if not plan.receive:
            return vector.detach().clone()
        self._own: Array = vector.detach().numpy()
        self._total: Array = np.empty_like(self._own)
        for start, stop in plan.preset:
            self._total[start:stop] = self._own[start:stop]
        self._done, self._stops = list(plan.starts), plan.stops
        self._waiting: dict[int, list[tuple[int, asyncio.Future[None]]]] = {}
        self._idle, self._hearing, self._idle_since = 0, len(plan.receive), 0.0
        await _all(
            *(self._send(self._members[peer], runs) for peer, runs in plan.send.items()),
            *(self._receive(self._members[peer], runs) for peer, runs in plan.receive.items()),
        )
        return torch.from_numpy(self._total)

    async def _send(self, to: PeerId, runs: Sequence[Run]) -> None:
        for run in runs:
            array, at = self._own if run.fresh else self._total, run.start
            while at < run.stop:
                until = self._until(run, at, to)
                await self._reach(run, until)
                chunk = Chunk(*self._key, run.step, at, until - at)
                await self._endpoint.send(to, chunk, self._payload(run, array, at, until))
                self._dealt_with(run, until)
                at = until

    def _until(self, run: Run, at: int, to: PeerId) -> int:
        """Where a chunk ends that begins at `at`."""
        return min(run.stop, at + max(1, self._endpoint.chunk_bytes(to) // self._own.itemsize))

    def _payload(self, run: Run, array: Array, at: int, until: int) -> Buffer:
        values = array[at:until].copy() if run.copied else array[at:until]
        return memoryview(values.data).cast("B")

    async def _receive(self, sender: PeerId, runs: Sequence[Run]) -> None:
        for run in runs:
            at = run.start
            while at < run.stop:
                envelope = await self._next(sender, first=at == run.start)
                try:
                    values = self._values(envelope, run, at)
                    await self._reach(run, at + len(values))
                    self._put(values, run, at)
                finally:
                    envelope.done()
                at += len(values)
                self._dealt_with(run, at)
        self._hearing -= 1
        if self._idle and self._idle == self._hearing:
            self._idle_since = asyncio.get_running_loop().time()

    async def _next(self, sender: PeerId, *, first: bool) -> Envelope:
        """The next chunk of `sender`. While all who are heard are late with what is the `first` of a run, that is
        waiting, and not transfer."""
        if not first or self._inbox.has(self._key, sender):
            return await self._inbox.take(self._key, sender)
        clock = asyncio.get_running_loop().time
        self._idle += 1
        if self._idle == self._hearing:
            self._idle_since = clock()
        try:
            return await self._inbox.take(self._key, sender)
        finally:
            if self._idle == self._hearing:
                self._inbox.waited_s += clock() - self._idle_since
            self._idle -= 1

    def _values(self, envelope: Envelope, run: Run, at: int) -> Array:
        """What a chunk carries, if it is the one that is due."""
        self._check(envelope, run, at)
        return np.frombuffer(envelope.payload, dtype=self._total.dtype)

    def _check(self, envelope: Envelope, run: Run, at: int) -> None:
        chunk: Chunk = envelope.message
        due = (chunk.step, chunk.at) == (run.step, at) and 0 < chunk.count <= run.stop - at
        if not due or len(envelope.payload) != self._bytes_of(at, chunk.count):
            what = f"{chunk.count} elements in {len(envelope.payload)} bytes at {chunk.at} in step {chunk.step}"
            why = f"it sent {what} when step {run.step}, elements {at} to {run.stop} were due"
            raise PeerLost(envelope.sender, why)

    def _bytes_of(self, at: int, count: int) -> int:
        """How many bytes a chunk of `count` elements from `at` on has."""
        return count * self._own.itemsize

    def _put(self, values: Array, run: Run, at: int) -> None:
        here = slice(at, at + len(values))
        if run.op is Op.COPY:
            self._total[here] = values
        else:
            np.add((self._own if run.fresh else self._total)[here], values, out=self._total[here])

    # How far each run has come

    async def _reach(self, run: Run, until: int) -> None:
        """Wait until what `run` needs has been dealt with up to the element `until`."""
        for number in run.after:
            due = min(until, self._stops[number])
            while self._done[number] < due:
                reached = asyncio.get_running_loop().create_future()
                self._waiting.setdefault(number, []).append((due, reached))
                await reached

    def _dealt_with(self, run: Run, until: int) -> None:
        self._done[run.number] = until
        if run.number in self._waiting:
            waiting = self._waiting.pop(run.number)
            self._waiting[run.number] = [(due, reached) for due, reached in waiting if due > until]
            for due, reached in waiting:
                if due <= until and not reached.done():
                    reached.set_result(None)


async def _all(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all of them; the first that fails ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as together:
            for coroutine in coroutines:
                together.create_task(coroutine)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def allreduce(
    endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], schedule: Schedule, vector: Tensor, *, key: Key
) -> Tensor:
    """The sum of every member's `vector` ([n], CPU, contiguous), the same bits on every member.

    Nobody may write to it, nor to `vector` until all have a result or have given this attempt up: parts of both can
    still be on their way to others. Raises PeerLost.
    """
    if not torch.is_tensor(vector) or vector.device.type != "cpu" or vector.dim() != 1:
        raise ValueError("allreduce takes a flat CPU tensor")
    return await Allreduce(endpoint, inbox, members, schedule, key).run(vector)
