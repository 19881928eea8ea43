"""Allreduce: one executor for any schedule (`aggregation.schedules`), so that all end with the same sum, bit by bit.

Each step's parts go out in chunks sized to the link while the step's incoming parts are added or copied as their
chunks arrive; sends and receives run side by side, as "everybody sends, then everybody receives" would deadlock once
a part is larger than the credit window.
Cost: the schedule's. On loss, lateness or death of a peer nothing is returned and the caller's vector is untouched:
the caller cancels, and starts again among the survivors in a new generation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..aggregation.schedules.schedule import Op, Schedule, Step
from ..aggregation.vector import parts
from .delivery.link import PeerLost
from .endpoint import Endpoint, Envelope
from .off_loop import off_loop
from .rounds import Key
from .transport import PeerId
from .wire import Lane, message

Array = npt.NDArray[np.floating[Any]]
Plan = Any
"""A Schedule: a value, hence the key of a cache, which mypy cannot know of a protocol."""


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
        self.waited_s = 0.0
        """For others to begin with what is due next. Whoever wants to know for how long sets it to 0 before."""
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

    async def take(self, key: Key, sender: PeerId, *, first: bool = False) -> Envelope:
        """The next chunk of `sender`; `first`: of a step; `sender` may not be there yet."""
        clock = asyncio.get_running_loop().time
        began = clock()
        queue = self._queues.setdefault(key, {}).setdefault(sender, _Queue())
        while not queue.waiting:
            queue.taker = asyncio.get_running_loop().create_future()
            await queue.taker
        if first:
            self.waited_s += clock() - began
        return queue.waiting.popleft()

    def _put(self, envelope: Envelope) -> None:
        key = (envelope.message.generation, envelope.message.round)
        if key < self._floor:
            self.stale += 1
            envelope.done()
            return
        queue = self._queues.setdefault(key, {}).setdefault(envelope.sender, _Queue())
        queue.waiting.append(envelope)
        if queue.taker is not None and not queue.taker.done():
            queue.taker.set_result(None)


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring parts that come from one rank in one step and are treated alike: elements `start` to `stop`."""

    sender: int
    start: int
    stop: int
    op: Op


@dataclass(frozen=True, slots=True)
class _Leg:
    """One step of one rank, in elements: what it sends to each rank, what it receives, in order, and whether what it
    sends has to be copied first."""

    send: tuple[tuple[int, tuple[_Run, ...]], ...]
    receive: tuple[_Run, ...]
    copied: bool


@lru_cache(maxsize=2048)
def _steps(schedule: Plan, rank: int, world: int) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = schedule.steps(rank, world)
    return steps


@lru_cache(maxsize=2048)
def _receipts(schedule: Plan, rank: int, world: int, size: int) -> tuple[tuple[_Run, ...], ...]:
    """What each step receives. Sender and receiver both read it, so they agree on where every chunk belongs."""
    bounds, received = parts(size, schedule.parts(world)), []
    for step in _steps(schedule, rank, world):
        runs: list[_Run] = []
        for receipt in step.receive:
            start, stop = bounds[receipt.part]
            if runs and (runs[-1].sender, runs[-1].op, runs[-1].stop) == (receipt.peer, receipt.op, start):
                start = runs.pop().start
            if start < stop:
                runs.append(_Run(receipt.peer, start, stop, receipt.op))
        received.append(tuple(runs))
    return tuple(received)


@lru_cache(maxsize=2048)
def _legs(schedule: Plan, rank: int, world: int, size: int) -> tuple[_Leg, ...]:
    steps, received = _steps(schedule, rank, world), _receipts(schedule, rank, world, size)
    legs = []
    for number, (step, copied) in enumerate(zip(steps, _copied(steps), strict=True)):
        partners = dict.fromkeys(transfer.peer for transfer in step.send)
        theirs = {peer: _receipts(schedule, peer, world, size)[number] for peer in partners}
        send = tuple((peer, tuple(run for run in runs if run.sender == rank)) for peer, runs in theirs.items())
        legs.append(_Leg(send, received[number], copied))
    return tuple(legs)


def _copied(steps: Sequence[Step]) -> list[bool]:
    """Which steps must send from a copy, as a part that they send could be written while it is still on its way.

    A value that later replaces the part holds what was sent, so it comes after that has arrived, if it was sent to one
    peer only. Anything else may come at any time.
    """
    copied: list[bool] = []
    written: dict[int, tuple[Op, int]] = {}  # by part: how it is written next, and how often it is sent before
    for step in reversed(steps):
        now = {receipt.part for receipt in step.receive}
        written |= {receipt.part: (receipt.op, 0) for receipt in reversed(step.receive)}
        for part in (transfer.part for transfer in step.send if transfer.part in written):
            written[part] = (written[part][0], written[part][1] + 1)
        coming = [(transfer.part in now, *written.get(transfer.part, (Op.COPY, 0))) for transfer in step.send]
        copied.append(any(at_once or op is Op.ADD or sends > 1 for at_once, op, sends in coming))
    return copied[::-1]


class Allreduce:
    """One attempt at summing a vector over `members` (in rank order) by `schedule`."""

    def __init__(
        self, endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], schedule: Schedule, key: Key
    ) -> None:
        self._endpoint, self._inbox, self._members, self._key = endpoint, inbox, members, key
        self._plan: Plan = schedule
        self._rank = members.index(endpoint.id)

    async def run(self, vector: Tensor) -> Tensor:
        """The sum over all members, the same bits on each. Raises PeerLost, also for one who breaks the schedule."""
        total = await off_loop(vector.nbytes, lambda: vector.detach().clone())
        array: Array = total.numpy()
        for number, leg in enumerate(_legs(self._plan, self._rank, len(self._members), total.numel())):
            sent = await off_loop(array.nbytes, array.copy) if leg.copied else array
            try:
                async with asyncio.TaskGroup() as sending:
                    for peer, runs in leg.send:
                        sending.create_task(self._send(number, self._members[peer], runs, sent))
                    await self._receive(number, leg, array)
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
        return total

    async def _send(self, number: int, to: PeerId, runs: Sequence[_Run], array: Array) -> None:
        for run in runs:
            at = run.start
            while at < run.stop:
                until = min(run.stop, at + max(1, self._endpoint.chunk_bytes(to) // array.itemsize))
                await self._endpoint.send(to, Chunk(*self._key, number, at), memoryview(array[at:until].data).cast("B"))
                at = until

    async def _receive(self, number: int, leg: _Leg, array: Array) -> None:
        for run in leg.receive:
            at = run.start
            while at < run.stop:
                envelope = await self._inbox.take(self._key, self._members[run.sender], first=at == run.start)
                try:
                    at += self._put(envelope, number, at, run, array)
                finally:
                    envelope.done()

    def _put(self, envelope: Envelope, number: int, at: int, run: _Run, array: Array) -> int:
        """Add or copy a chunk at `at`; returns how many elements it has."""
        chunk: Chunk = envelope.message
        count, rest = divmod(len(envelope.payload), array.itemsize)
        if (chunk.step, chunk.at) != (number, at) or rest or not 0 < count <= run.stop - at:
            due = f"step {number}, elements {at} to {run.stop}"
            why = f"it sent {count} elements and {rest} bytes at {chunk.at} in step {chunk.step} when {due} were due"
            raise PeerLost(envelope.sender, why)
        values = np.frombuffer(envelope.payload, dtype=array.dtype)
        if run.op is Op.ADD:
            array[at : at + count] += values
        else:
            array[at : at + count] = values
        return count


async def allreduce(
    endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], schedule: Schedule, vector: Tensor, *, key: Key
) -> Tensor:
    """The sum of every member's `vector` ([n], CPU, contiguous), the same bits on every member.

    Nobody may write to it: parts of it can still be on their way to others. Raises PeerLost.
    """
    if not torch.is_tensor(vector) or vector.device.type != "cpu" or vector.dim() != 1:
        raise ValueError("allreduce takes a flat CPU tensor")
    return await Allreduce(endpoint, inbox, members, schedule, key).run(vector)
