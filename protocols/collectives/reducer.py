"""The reducer: sums over the members of a group, in shared memory or by messages, the same bits on each member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ...aggregation.codecs.codec import HopCodec
from ...aggregation.evidence import WITNESSES, Brought
from ...aggregation.mean import Mean
from ...aggregation.schedules.around import around
from ...aggregation.schedules.choice import LinkCosts, seconds_of
from ...aggregation.schedules.naive import Naive
from ...aggregation.schedules.schedule import Schedule
from ...aggregation.schedules.sharded import Sharded
from ..channel import Channel
from ..group import Group
from ..limits import ONE_HOP_MEMBERS_MAX
from ..meter import Meter
from ..shared_memory.arena import Commons
from ..shared_memory.ordered_sum import sum_all
from ..shared_memory.sums import Sums, bytes_for
from ..transfer.chunks import AttemptId, Inbox, StageId
from ..transport import PeerId
from .all_gather import gather
from .allreduce import allreduce
from .bound import Bound, Guard
from .coded import CodedAllreduce
from .shown import shown

ONE_HOP_BYTES = 8 * 1024
"""Vectors up to this size are summed in one hop by peers on different machines: each sends its whole vector to all
others, and each adds all vectors in the order of the sharded schedule. This takes the time of one message instead of
two."""
ONE_MACHINE_BYTES = 2 << 20
"""Vectors up to this size, where peers on one machine send messages, are summed by the naive schedule: the peers share
cores, so the fewest messages are fastest."""
STAGES = 1 << 16
"""The most sums in a round."""
_SHOWN, _GUARDED = 1 << 40, 1 << 41
"""The first stages, beyond those of all ordinary sums: of contributions that are shown, and of sums repeated under a
guard."""
_AMONG, _AMONG_BITS = 1 << 42, 20
"""The first stages of sums among some of the members, in steps for so many bits of their digest: peers that do not
agree on the members do not use each other's chunks."""


def takes_one_hop(nbytes: int, world: int) -> bool:
    """Whether a vector of `nbytes` is summed in one hop among `world` peers, where the sharded schedule is chosen: it
    has at most 8 KiB, and they are 2 to 8."""
    return nbytes <= ONE_HOP_BYTES and 1 < world <= ONE_HOP_MEMBERS_MAX


def on_one_machine(nbytes: int) -> Schedule:
    """The schedule for a vector of `nbytes` that peers on one machine send as messages, because they share no memory:
    naive up to 2 MiB, else sharded."""
    return Naive() if nbytes <= ONE_MACHINE_BYTES else Sharded()


def _number(attempt: AttemptId, stage: int) -> int:
    return STAGES * attempt[1] + stage


class Reducer:
    """Sums one peer's vectors with those of the other members, in shared memory or by messages. `schedule` chooses the
    schedule for a group. `present` returns the present group. `bound`: how large a mean may be. `meter` counts the time
    of the sums; None: a new one. An attempt (epoch, round) is one try at a round of sums; PeerLost of its sums is that
    of `allreduce`."""

    def __init__(
        self,
        channel: Channel,
        schedule: Callable[[Group], Schedule],
        present: Callable[[], Group],
        bound: Bound = Bound(),  # noqa: B008  # a value
        meter: Meter | None = None,
    ) -> None:
        self.bound = bound
        self.guard: Guard | None = None
        """The guard that checks arriving chunks; None outside the context of `under`."""
        self.inbox = Inbox(channel, present, meter)
        self.bytes_shared = 0
        """Bytes written to and read from shared memory in completed sums."""
        self._channel, self._schedule, self._present = channel, schedule, present
        self._commons = Commons(channel, present)
        self._sums: Sums | None = None
        self._in_place: Sums | None = None

    @property
    def in_place(self) -> bool:
        """Whether the last sum was made in shared memory; False from when the next one, or a gather, begins."""
        return self._in_place is not None

    @property
    def shares_memory(self) -> bool:
        """Whether the members of the present group try to sum in shared memory: all are on one machine, no two of them
        are `apart`, the schedule is the sharded one, and no guard checks chunks. Such sums are made one after
        another."""
        group = self.group
        apart = self.guard is not None or bool(group.apart)
        return not apart and group.one_machine and isinstance(self._schedule(group), Sharded)

    def foreseen_s(self, size_bytes: int, costs: LinkCosts) -> float | None:
        """Predicted seconds of a sum of `size_bytes` in the present group, on links of these `costs`. None: no costs
        are known, or the sum is made in shared memory. A codec's savings are not subtracted: encoding takes time too,
        and a catch-up and the averages of a site send all bytes."""
        group = self.group
        if self.shares_memory:
            return None
        schedule, shares = self._cut(group)
        return seconds_of(schedule, costs, len(group.ids), size_bytes, group.levels_Bps, shares)

    @property
    def group(self) -> Group:
        """The group that `present` returns now."""
        return self._present()

    async def sum(
        self,
        vector: Tensor,
        attempt: AttemptId,
        *,
        stage: int = 0,
        codec: HopCodec | None = None,
        tail: int = 0,
        gain: float = 1.0,
    ) -> Tensor:
        """The sum [n] of every member's `vector` ([n], CPU, contiguous), the same bits on every member. It may lie in
        shared memory: then it is valid until the next sum begins. `stage`: index of the sum in its round, below
        `STAGES`. `codec` (None: none) encodes all elements but the last `tail`, which are not of the model, but signals
        and a weight. `gain`: how many times larger than a model's the other elements may be. Raises PeerLost. All
        members of the group call it for the same attempt and stage, with the same `codec` and `tail`. For an attempt
        whose epoch is not that of the present group it never returns, and waits for the caller to cancel it."""
        guard = None if self.guard is None else self.guard.times(gain)
        group, stage_id = await self._begin(attempt), self._stage_id(attempt, stage)
        if codec is not None:
            schedule, shares = self._cut(group)
            coded = CodedAllreduce(
                self._channel,
                self.inbox,
                group,
                schedule,
                stage_id,
                shares,
                codec=codec,
                tail=tail,
                guard=guard,
            )
            return await coded.run(vector)
        sums = await self._shared(vector.numel(), vector.dtype)
        if sums is not None:
            total = await sums.run(vector, _number(attempt, stage))
            self._in_place = sums
            self.bytes_shared += sums.moved_bytes
            return total
        return await self._by_messages(group, vector, stage_id, tail, guard)

    async def sum_among(self, members: Collection[PeerId], vector: Tensor, attempt: AttemptId, turn: int) -> Tensor:
        """The sum [n] of the `vector` ([n], CPU, contiguous) of each of these `members`, this peer among them, by
        messages. All of them must call it with the same members. `turn`: which of a site's averages within the round it
        is for, counted from 1. Raises PeerLost. Never returns for an attempt of another epoch (`sum`)."""
        some = (await self._begin(attempt)).among(members)
        return await self._by_messages(
            some, vector, (*attempt, _AMONG * (1 + some.digest % (1 << _AMONG_BITS)) + turn), 1
        )

    async def shown(
        self, members: Collection[PeerId], message: Tensor, attempt: AttemptId, turn: int, tail: int
    ) -> list[Brought]:
        """The norm, largest magnitude and weight of each of these members' contributions to a sum that cannot be right,
        in rank order, as the others saw them (the function `shown`). The sum is that of the round (`turn` 0) or of a
        site's average within it (`turn` from 1). `message` [n]: this peer's contribution; `tail`: how many of its last
        elements are not of the model. Raises PeerLost. Never returns for an attempt of another epoch (`sum`)."""
        some, stage = (await self._begin(attempt)).among(members), _SHOWN + (WITNESSES + 1) * turn
        return await shown(self._channel, self.inbox, some, message, attempt=attempt, stage=stage, tail=tail)

    @contextmanager
    def under(self, guard: Guard) -> Iterator[None]:
        """Context in which `guard` checks every arriving chunk. In it sums are made by messages and by the sharded
        schedule, so that each part comes directly from the peer that contributes it or owns its sum. All members must
        enter it for the same sums."""
        self.guard = guard
        try:
            yield
        finally:
            self.guard = None

    async def _by_messages(
        self, group: Group, vector: Tensor, stage_id: StageId, tail: int, guard: Guard | None = None
    ) -> Tensor:
        schedule, shares = self._cut(group)
        if isinstance(schedule, Sharded) and guard is None:
            if group.one_machine:
                shares = None
                schedule = around(on_one_machine(vector.nbytes), group.apart, len(group.ids))
            elif takes_one_hop(vector.nbytes, len(group.ids)):
                everything = await self._gathered(group, vector.view(torch.uint8), stage_id)
                return sum_all([theirs.view(vector.dtype) for _, theirs in everything])
        return await allreduce(
            self._channel,
            self.inbox,
            group,
            schedule,
            vector,
            stage_id=stage_id,
            shares=shares,
            guard=guard,
            tail=tail,
        )

    def _cut(self, group: Group) -> tuple[Schedule, tuple[float, ...] | None]:
        """The schedule in `group`, and the share of the sum that each member owns; None: equal shares."""
        wanted = self._schedule(group) if self.guard is None else Sharded()
        schedule = around(wanted, group.apart, len(group.ids))
        return schedule, group.shares if isinstance(schedule, Sharded) else None

    async def gather(self, payload: Tensor, attempt: AttemptId) -> list[tuple[PeerId, Tensor]]:
        """Send this member's `payload` ([n], uint8, the same n for all) to all members, and return every member's
        payload with its sender's id, in rank order. Raises PeerLost. Never returns for an attempt of another epoch
        (`sum`)."""
        return await self._gathered(await self._begin(attempt), payload, self._stage_id(attempt, 0))

    async def _gathered(self, group: Group, payload: Tensor, stage_id: StageId) -> list[tuple[PeerId, Tensor]]:
        return await gather(self._channel, self.inbox, group, payload, stage_id=stage_id)

    def check(self, mean: Mean, anchor: Tensor, gain: float = 1.0) -> None:
        """Raises BadSum when `mean` is too large for `anchor` [n], the model that all had before (`Bound.check`). Under
        a guard it checks nothing, because each chunk was checked. `gain`: as for `sum`."""
        if self.guard is None:
            self.bound.times(gain).check(mean, anchor, len(self.group.ids))

    async def all_have(self, attempt: AttemptId) -> None:
        """If the last sum was made in shared memory, wait until every member has its result. Until then no rank may
        write its next vector there. Otherwise return at once. `attempt`: that of the last sum. To be called once, after
        all sums of the attempt."""
        if self._in_place is not None:
            await self._in_place.all_have(_number(attempt, STAGES - 1))

    async def buffer(self, count: int, dtype: torch.dtype, attempt: AttemptId) -> Tensor | None:
        """A tensor [count] in shared memory for this peer's next vector, the first of its round (stage 0), which is
        then summed without a copy. None: sums are not made in shared memory."""
        sums = await self._shared(count, dtype)
        return None if sums is None else sums.slot(_number(attempt, 0))

    def _stage_id(self, attempt: AttemptId, stage: int) -> StageId:
        return (*attempt, stage if self.guard is None else _GUARDED + stage)

    async def _begin(self, attempt: AttemptId) -> Group:
        """The present group, for one more sum. If its epoch differs from the attempt's, the attempt is over and about
        to be cancelled: it must not join in the new group, and waits to be cancelled."""
        group = self.group
        if group.epoch != attempt[0]:
            await asyncio.get_running_loop().create_future()
        self._in_place = None
        self.inbox.advance(attempt)
        return group

    async def _shared(self, count: int, dtype: torch.dtype) -> Sums | None:
        """The shared memory for sums of vectors [count]; None if the members share none, or use another schedule."""
        if not self.shares_memory:
            return None
        group = self.group
        segment = await self._commons.segment(bytes_for(count, dtype, len(group.ids)))
        if segment is None:
            return None
        if self._sums is None or not self._sums.are_of(segment, count, dtype):
            self._sums = Sums(segment, group.ids, group.rank, count, dtype, self.inbox.meter)
        return self._sums
