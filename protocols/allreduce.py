"""Allreduce: one executor for any schedule (`aggregation.schedule`), so that all peers end with the same sum, bit by bit.

Each step's parts go out in chunks sized to the link while the step's incoming parts are added or copied as their
chunks arrive; sends and receives run side by side, as "everybody sends, then everybody receives" would deadlock once
a part is larger than the credit window.
Cost: the schedule's. On loss, lateness or death of a peer nothing is returned and the caller's vector is untouched:
the caller cancels, and starts again among the survivors in a new generation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..aggregation.schedule import Op, Receipt, Schedule, Step, Transfer
from ..aggregation.vector import parts
from .endpoint import Endpoint, Envelope
from .link import PeerLost
from .transport import PeerId
from .wire import Lane, message

Array = npt.NDArray[np.floating[Any]]
Bounds = Sequence[tuple[int, int]]
Key = tuple[int, int]
"""(generation, round): one attempt at one round."""


@message(lane=Lane.DATA, payload_max=1 << 20)
@dataclass(frozen=True, slots=True)
class Chunk:
    """Payload: the sender's elements from the one at index `at` on, as it has them in `step`."""

    generation: int
    round: int
    step: int
    at: int


@dataclass(slots=True)
class _Queue:
    waiting: deque[Envelope] = field(default_factory=deque)
    taker: asyncio.Future[None] | None = None


class Inbox:
    """Chunks of this and coming rounds, by (generation, round) and sender; what is too old is dropped and counted."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.stale = 0
        self.first_at: dict[Key, float] = {}
        self._floor: Key = (0, 0)
        self._queues: dict[Key, dict[PeerId, _Queue]] = {}
        endpoint.on(Chunk, self._put)

    def advance(self, floor: Key) -> None:
        """Chunks of attempts before `floor` are not wanted any more."""
        self._floor = floor
        for key in [key for key in self._queues if key < floor]:
            for queue in self._queues.pop(key).values():
                for envelope in queue.waiting:
                    envelope.done()
            self.first_at.pop(key, None)

    async def take(self, key: Key, sender: PeerId) -> Envelope:
        queue = self._queues.setdefault(key, {}).setdefault(sender, _Queue())
        while not queue.waiting:
            queue.taker = asyncio.get_running_loop().create_future()
            await queue.taker
        return queue.waiting.popleft()

    def _put(self, envelope: Envelope) -> None:
        key = (envelope.message.generation, envelope.message.round)
        if key < self._floor:
            self.stale += 1
            envelope.done()
            return
        self.first_at.setdefault(key, asyncio.get_running_loop().time())
        queue = self._queues.setdefault(key, {}).setdefault(envelope.sender, _Queue())
        queue.waiting.append(envelope)
        if queue.taker is not None and not queue.taker.done():
            queue.taker.set_result(None)


class Allreduce:
    """One attempt at summing `vector` over `members` (in rank order) by `schedule`."""

    def __init__(
        self, endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], schedule: Schedule, key: Key
    ) -> None:
        self._endpoint, self._inbox, self._members, self._key = endpoint, inbox, members, key
        self._rank = members.index(endpoint.id)
        self._steps = schedule.steps(self._rank, len(members))
        self._parts = schedule.parts(len(members))

    async def run(self, vector: Tensor) -> Tensor:
        """The sum over all members, the same bits on each. Raises PeerLost, also for one who breaks the schedule.

        What was sent from the sum's buffer is overwritten only by values that depend on its arrival, so it may go
        out without a copy.
        """
        total = vector.clone()
        array: Array = total.numpy()
        bounds = parts(total.numel(), self._parts)
        for number, step in enumerate(self._steps):
            if not step.receive:
                await self._send(number, step, array, bounds)
                continue
            sending = asyncio.create_task(self._send(number, step, array, bounds)) if step.send else None
            try:
                await self._receive(number, step, array, bounds)
                if sending is not None:
                    await sending
            finally:
                if sending is not None and not sending.done():
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        return total

    async def _send(self, number: int, step: Step, array: Array, bounds: Bounds) -> None:
        for peer, start, stop in _runs(step.send, bounds):
            to, at = self._members[peer], start
            while at < stop:
                until = min(stop, at + max(1, self._endpoint.chunk_bytes(to) // array.itemsize))
                await self._endpoint.send(to, Chunk(*self._key, number, at), memoryview(array[at:until].data).cast("B"))
                at = until

    async def _receive(self, number: int, step: Step, array: Array, bounds: Bounds) -> None:
        for op in (Op.ADD, Op.COPY):
            for peer, start, stop in _runs([r for r in step.receive if r.op is op], bounds):
                await self._fill(number, self._members[peer], array, start, stop, op)

    async def _fill(self, number: int, sender: PeerId, array: Array, start: int, stop: int, op: Op) -> None:
        at = start
        while at < stop:
            envelope = await self._inbox.take(self._key, sender)
            chunk: Chunk = envelope.message
            count, rest = divmod(len(envelope.payload), array.itemsize)
            if (chunk.step, chunk.at) != (number, at) or rest or not 0 < count <= stop - at:
                due = f"step {number}, elements {at} to {stop}"
                raise PeerLost(sender, f"it sent {chunk} with {len(envelope.payload)} bytes when {due} were due")
            values = np.frombuffer(envelope.payload, dtype=array.dtype)
            if op is Op.ADD:
                array[at : at + count] += values
            else:
                array[at : at + count] = values
            at += count
            envelope.done()


def _runs(transfers: Iterable[Transfer | Receipt], bounds: Bounds) -> list[tuple[int, int, int]]:
    """(peer, start, stop) in elements: neighbouring parts that go the same way travel as one."""
    runs: list[tuple[int, int, int]] = []
    for transfer in transfers:
        start, stop = bounds[transfer.part]
        if runs and runs[-1][0] == transfer.peer and runs[-1][2] == start:
            runs[-1] = (transfer.peer, runs[-1][1], stop)
        else:
            runs.append((transfer.peer, start, stop))
    return runs


async def allreduce(
    endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], schedule: Schedule, vector: Tensor, *, key: Key
) -> Tensor:
    """The sum of every member's `vector` ([n], CPU, contiguous), the same bits on every member."""
    if not torch.is_tensor(vector) or vector.device.type != "cpu" or vector.dim() != 1:
        raise ValueError("allreduce takes a flat CPU tensor")
    return await Allreduce(endpoint, inbox, members, schedule, key).run(vector)
