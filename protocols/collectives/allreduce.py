"""Allreduce: one executor for any schedule (`aggregation.schedules`). All ranks end with the same sum, bit by bit.

A run (`plan`) is a range of elements that goes from one rank to another; it is sent in chunks, sized to the link. A
chunk is sent as soon as its elements are complete, and is added or copied on arrival, so reduce-scatter and all-gather
overlap, and a tree is a pipeline. Sums are added in the schedule's order, whatever the order of arrival. The transfers
to and from each peer advance independently, without a task, whenever a chunk or credit arrives. Every wait is for
something earlier in the schedule, so no deadlock is possible, however small the credit.
Cost: the schedule's.
On failure of a peer nothing is returned and the caller's vector is untouched: the caller cancels, and starts again
among the survivors in a new generation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...aggregation.schedules.schedule import Op, Schedule
from ..channel import Channel, Envelope
from ..group import Group
from ..link.link import PeerLost
from ..transfer.chunks import Chunk, Inbox, StageId
from ..transport import PeerId
from ..wire.frames import Buffer
from .bound import Guard
from .plan import Plan, Run, Value, plan_of

Array = npt.NDArray[np.floating[Any]]


@dataclass(slots=True, eq=False)
class _Way:
    """The runs to one peer, or from it, one after another. at, until: where the next chunk begins and ends; until 0:
    its end is not known yet. envelope, values: the chunk that was taken, and its values. posted: done when the last
    chunk is on its way. idle: this way waits for its peer."""

    peer: PeerId
    runs: deque[Run]
    sends: bool
    at: int
    until: int = 0
    envelope: Envelope | None = None
    values: Array | None = None
    posted: asyncio.Future[None] | None = None
    idle: bool = False


class Allreduce:
    """One attempt of this member at summing a vector [n] over a group by `schedule`. `stage_id`: (epoch, round, stage),
    which names the sum on all members. `shares`: relative sizes of the vector's parts; None: equal. `guard` checks
    arriving chunks; None: none does. The last `tail` elements are not of the model, but signals and a weight: `guard`
    does not count them in norms."""

    def __init__(
        self,
        channel: Channel,
        inbox: Inbox,
        group: Group,
        schedule: Schedule,
        stage_id: StageId,
        shares: tuple[float, ...] | None = None,
        *,
        guard: Guard | None = None,
        tail: int = 0,
    ) -> None:
        self._channel, self._inbox, self._members, self._stage_id = channel, inbox, group.ids, stage_id
        self._guard, self._tail = guard, tail
        self._schedule: Value = schedule
        self._shares = shares
        self._rank = group.rank

    async def run(self, vector: Tensor) -> Tensor:
        """The sum [n] of all members' vectors, the same bits on each. `vector`: this member's own, on the CPU,
        contiguous. To be called once. The caller's duties and PeerLost are those of `allreduce`."""
        plan = plan_of(self._schedule, self._rank, len(self._members), vector.numel(), self._shares)
        if not plan.receive and not plan.send:
            return vector.detach().clone()
        self._own: Array = vector.detach().numpy()
        self._total: Array = np.empty_like(self._own)
        for start, stop in plan.preset:
            self._total[start:stop] = self._own[start:stop]
        self._done, self._stops = list(plan.starts), plan.stops
        await self._go(plan)
        return torch.from_numpy(self._total)

    async def _go(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        out = [_Way(self._members[peer], deque(runs), True, runs[0].start) for peer, runs in plan.send.items()]
        self._heard = {
            self._members[peer]: _Way(self._members[peer], deque(runs), False, runs[0].start)
            for peer, runs in plan.receive.items()
        }
        self._left, self._hearing, self._idle, self._still = len(out) + len(self._heard), len(self._heard), 0, False
        self._blocked: dict[int, list[_Way]] = {}
        self._going: deque[_Way] | None = None
        with self._inbox.meter.summing(), self._inbox.listening(self._stage_id, self._arrived):
            try:
                self._advance(*out, *self._heard.values())
                await self._over
            finally:
                self._stand(False)
                for way in (*out, *self._heard.values()):
                    if way.posted is not None:
                        way.posted.cancel()
                    if way.envelope is not None:
                        way.envelope.done()

    def _advance(self, *ways: _Way) -> None:
        """Advance these ways as far as possible, and then those that this unblocks."""
        if self._going is not None:
            self._going.extend(ways)
            return
        self._going = deque(ways)
        try:
            while self._going and not self._over.done():
                way = self._going.popleft()
                (self._send if way.sends else self._receive)(way)
        except Exception as error:
            self._over.set_exception(error)
        finally:
            self._going = None

    def _send(self, way: _Way) -> None:
        while way.runs and way.posted is None:
            run = way.runs[0]
            until = way.until = way.until or self._until(run, way.at, way.peer)
            if not self._reached(run, until, way):
                return
            chunk = Chunk(*self._stage_id, run.step, way.at, until - way.at)
            payload = self._payload(run, self._own if run.fresh else self._total, way.at, until)
            way.posted = self._channel.offer(way.peer, chunk, payload)
            if way.posted is None:
                self._dealt_with(run, until, way)
            else:
                way.posted.add_done_callback(partial(self._posted, way, run, until))

    def _posted(self, way: _Way, run: Run, until: int, posted: asyncio.Future[None]) -> None:
        """A chunk that waited for credit is on its way."""
        way.posted = None
        error = None if posted.cancelled() else posted.exception()
        if posted.cancelled() or self._over.done():
            return
        if error is not None:
            self._over.set_exception(error)
            return
        self._dealt_with(run, until, way)
        self._advance(way)

    def _until(self, run: Run, at: int, to: PeerId) -> int:
        """The end of the chunk that begins at `at`."""
        return min(run.stop, at + max(1, self._channel.endpoint.chunk_bytes(to) // self._own.itemsize))

    def _payload(self, run: Run, array: Array, at: int, until: int) -> Buffer:
        values = array[at:until].copy() if run.copied else array[at:until]
        return memoryview(values.data).cast("B")

    def _arrived(self, sender: PeerId) -> None:
        way = self._heard.get(sender)
        if way is not None and way.envelope is None and not self._over.done():
            self._advance(way)

    def _receive(self, way: _Way) -> None:
        while way.runs:
            run = way.runs[0]
            if way.envelope is None or way.values is None:
                envelope = self._inbox.take(self._stage_id, way.peer)
                if envelope is None:
                    if way.at == run.start:
                        self._wait(way)
                    return
                if self._still:
                    self._inbox.meter.read()  # count the wait for this peer up to now
                way.envelope = envelope
                way.values = self._values(envelope, run, way.at)
                way.until = way.at + len(way.values)
            if not self._reached(run, way.until, way):
                self._wait(way)
                return
            self._wait_no_more(way)
            self._put(way.values, run, way.at)
            way.envelope.done()
            way.envelope = None
            self._dealt_with(run, way.until, way)

    def _wait(self, way: _Way) -> None:
        """Mark a way as idle. Time counts as waiting, not as transfer, while every receiving way is idle: no chunk of
        its due run has arrived, or only one that must be added after chunks that have not."""
        if not way.idle:
            way.idle = True
            self._idle += 1
            self._stand(self._idle == self._hearing)

    def _wait_no_more(self, way: _Way) -> None:
        if way.idle:
            self._stand(False)
            way.idle = False
            self._idle -= 1

    def _stand(self, still: bool) -> None:
        if still is not self._still:
            self._still, meter = still, self._inbox.meter
            (meter.stall_begins if still else meter.stall_ends)(self._late)

    def _late(self) -> list[PeerId]:
        """The peers whose own contribution has not begun to arrive: a first step's sends depend on no other peer."""
        ways = self._heard.values()
        return [way.peer for way in ways if way.idle and way.envelope is None and way.runs[0].step == 0]

    def _values(self, envelope: Envelope, run: Run, at: int) -> Array:
        """The values of a chunk. Raises PeerLost when it is not the chunk that is due."""
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
        """The payload bytes of a chunk of `count` elements from `at` on."""
        return count * self._own.itemsize

    def _put(self, values: Array, run: Run, at: int) -> None:
        here = slice(at, at + len(values))
        if self._guard is not None:
            beyond = here.stop - (len(self._own) - self._tail)
            self._guard.check(self._members[run.peer], values, run.op, min(max(0, beyond), len(values)))
        if run.op is Op.COPY:
            self._total[here] = values
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # the mean is checked for being finite
                np.add((self._own if run.fresh else self._total)[here], values, out=self._total[here])

    # How far each run has come

    def _reached(self, run: Run, until: int, way: _Way) -> bool:
        """Whether the runs that `run` depends on have processed the elements up to `until`; if not, block `way`."""
        for number in run.after:
            if self._done[number] < min(until, self._stops[number]):
                self._blocked.setdefault(number, []).append(way)
                return False
        return True

    def _dealt_with(self, run: Run, until: int, way: _Way) -> None:
        self._done[run.number] = way.at = until
        way.until = 0
        if run.number in self._blocked:
            self._advance(*self._blocked.pop(run.number))
        if until == run.stop:
            way.runs.popleft()
            if way.runs:
                way.at = way.runs[0].start
            else:
                self._ended(way)

    def _ended(self, way: _Way) -> None:
        self._left -= 1
        if not way.sends:
            self._hearing -= 1
            self._stand(0 < self._idle == self._hearing)
        if not self._left and not self._over.done():
            self._over.set_result(None)


async def allreduce(
    channel: Channel,
    inbox: Inbox,
    group: Group,
    schedule: Schedule,
    vector: Tensor,
    *,
    stage_id: StageId,
    shares: tuple[float, ...] | None = None,
    guard: Guard | None = None,
    tail: int = 0,
) -> Tensor:
    """The sum [n] of every member's `vector` ([n], CPU, contiguous), the same bits on every member. `shares`, `guard`,
    `tail`: as for `Allreduce`.

    The caller must not write to the sum or to `vector` until all members have a result or have given this attempt up:
    parts of both can still be in flight. Raises PeerLost if a peer breaks the schedule, or a chunk is to be sent to a
    lost one; if a lost peer is only waited for, this goes on waiting until the caller cancels it. Raises ValueError for
    a `vector` that is not on the CPU or has not one dimension.
    """
    if not torch.is_tensor(vector) or vector.device.type != "cpu" or vector.dim() != 1:
        raise ValueError("allreduce takes a flat CPU tensor")
    return await Allreduce(channel, inbox, group, schedule, stage_id, shares, guard=guard, tail=tail).run(vector)
