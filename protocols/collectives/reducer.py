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
from ..shared_memory.arena import Commons
from ..shared_memory.ordered_sum import sum_all
from ..shared_memory.sums import Sums, bytes_for
from ..transfer.chunks import Inbox, Key, Turn
from ..transport import PeerId
from .all_gather import gather
from .allreduce import allreduce
from .bound import Bound, Guard
from .coded import CodedAllreduce
from .shown import shown

ONE_HOP_BYTES = 8 * 1024
"""Up to this size, peers on different machines send the whole vector to each other at once, and each adds all vectors
in the order of the sharded schedule: the time of one message instead of two."""
ONE_MACHINE_BYTES = 2 << 20
"""Up to this size, vectors sent on one machine use the naive schedule: peers share cores, so fewest messages win."""
STAGES = 1 << 16
"""The most sums in a round."""
_SHOWN, _GUARDED = 1 << 40, 1 << 41
"""The first stages, beyond those of all sums, of contributions that are shown, and of sums repeated under a guard."""


def takes_one_hop(nbytes: int, world: int) -> bool:
    """Whether the sharded schedule sums a vector of `nbytes` in one hop among `world` peers."""
    return nbytes <= ONE_HOP_BYTES and 1 < world <= ONE_HOP_MEMBERS_MAX


def on_one_machine(nbytes: int) -> Schedule:
    """The schedule for a vector that peers on one machine have to send, because they share no memory."""
    return Naive() if nbytes <= ONE_MACHINE_BYTES else Sharded()


def _number(key: Key, stage: int) -> int:
    return STAGES * key[1] + stage


class Reducer:
    """One peer's part in the sums of a run. `schedule` chooses one for a group; `present` returns the present group;
    `bound`: how large a mean may be."""

    def __init__(
        self,
        channel: Channel,
        schedule: Callable[[Group], Schedule],
        present: Callable[[], Group],
        bound: Bound = Bound(),  # noqa: B008  # a value
    ) -> None:
        self.bound = bound
        self.guard: Guard | None = None
        """The guard that checks arriving chunks, while sums are made `under` it."""
        self.inbox = Inbox(channel, present)
        self.bytes_shared = 0
        """Bytes written to and read from shared memory in completed sums."""
        self._channel, self._schedule, self._present = channel, schedule, present
        self._commons = Commons(channel, present)
        self._sums: Sums | None = None
        self._in_place: Sums | None = None

    @property
    def in_place(self) -> bool:
        """Whether the last sum was made in shared memory."""
        return self._in_place is not None

    @property
    def shares_memory(self) -> bool:
        """Whether sums are made in shared memory if the members can set it up: then one after another."""
        group = self.group
        apart = self.guard is not None or bool(group.apart)
        return not apart and group.one_machine and isinstance(self._schedule(group), Sharded)

    def foreseen_s(self, size_bytes: int, costs: LinkCosts) -> float | None:
        """Predicted seconds of a sum of `size_bytes` in the present group, on links of these `costs`; None: nothing is
        known, or memory is shared. A codec's savings are not subtracted: encoding takes time too, and a catch-up and
        the sums of sites send all bytes."""
        group = self.group
        if self.shares_memory:
            return None
        schedule, shares = self._cut(group)
        return seconds_of(schedule, costs, len(group.ids), size_bytes, group.levels_Bps, shares)

    @property
    def group(self) -> Group:
        """The present group."""
        return self._present()

    async def sum(
        self,
        vector: Tensor,
        key: Key,
        *,
        stage: int = 0,
        codec: HopCodec | None = None,
        tail: int = 0,
        gain: float = 1.0,
    ) -> Tensor:
        """The sum of every member's `vector` ([n], CPU, contiguous), the same bits on every member. It may be in
        shared memory: then it is valid until the next sum is asked for. `stage`: index of the sum in its round, below
        `STAGES`. `tail`: elements at the end that are not the model's; `codec` encodes all others on their way; `gain`:
        how many times larger than a model those may be. Raises PeerLost."""
        guard = None if self.guard is None else self.guard.times(gain)
        group, turn = await self._begin(key), self._turn(key, stage)
        if codec is not None:
            schedule, shares = self._cut(group)
            coded = CodedAllreduce(
                self._channel,
                self.inbox,
                group,
                schedule,
                turn,
                shares,
                codec=codec,
                tail=tail,
                guard=guard,
            )
            return await coded.run(vector)
        sums = await self._shared(vector.numel(), vector.dtype)
        if sums is not None:
            total = await sums.run(vector, _number(key, stage))
            self._in_place = sums
            self.bytes_shared += sums.moved_bytes
            return total
        return await self._by_messages(group, vector, turn, tail, guard)

    async def sum_among(self, members: Collection[PeerId], vector: Tensor, key: Key, turn: int) -> Tensor:
        """The sum over some of the members, by messages. `turn`: index of this sum before the round's own, from 1."""
        some = (await self._begin(key)).among(members)
        return await self._by_messages(some, vector, (*key, STAGES + turn), 1)

    async def shown(
        self, members: Collection[PeerId], message: Tensor, key: Key, turn: int, tail: int
    ) -> list[Brought]:
        """The contributions of these members to the round (`turn` 0), or to a `turn` from 1 before it, in rank order:
        see `shown`. Raises PeerLost."""
        some, stage = (await self._begin(key)).among(members), _SHOWN + (WITNESSES + 1) * turn
        return await shown(self._channel, self.inbox, some, message, key=key, stage=stage, tail=tail)

    @contextmanager
    def under(self, guard: Guard) -> Iterator[None]:
        """Context in which sums are made by messages, each part by its owner directly, and `guard` checks arriving
        chunks. All members must enter it."""
        self.guard = guard
        try:
            yield
        finally:
            self.guard = None

    async def _by_messages(
        self, group: Group, vector: Tensor, turn: Turn, tail: int, guard: Guard | None = None
    ) -> Tensor:
        schedule, shares = self._cut(group)
        if isinstance(schedule, Sharded) and guard is None:
            if group.one_machine:
                shares = None
                schedule = around(on_one_machine(vector.nbytes), group.apart, len(group.ids))
            elif takes_one_hop(vector.nbytes, len(group.ids)):
                everything = await self._gathered(group, vector.view(torch.uint8), turn)
                return sum_all([theirs.view(vector.dtype) for _, theirs in everything])
        return await allreduce(
            self._channel,
            self.inbox,
            group,
            schedule,
            vector,
            turn=turn,
            shares=shares,
            guard=guard,
            tail=tail,
        )

    def _cut(self, group: Group) -> tuple[Schedule, tuple[float, ...] | None]:
        """The schedule in `group`, and the share of the sum that each member owns; None: equal shares."""
        wanted = self._schedule(group) if self.guard is None else Sharded()
        schedule = around(wanted, group.apart, len(group.ids))
        return schedule, group.shares if isinstance(schedule, Sharded) else None

    async def gather(self, payload: Tensor, key: Key) -> list[tuple[PeerId, Tensor]]:
        """Every member's `payload` (uint8, equally many bytes), in rank order. Raises PeerLost."""
        return await self._gathered(await self._begin(key), payload, self._turn(key, 0))

    async def _gathered(self, group: Group, payload: Tensor, turn: Turn) -> list[tuple[PeerId, Tensor]]:
        return await gather(self._channel, self.inbox, group, payload, turn=turn)

    def check(self, mean: Mean, anchor: Tensor, gain: float = 1.0) -> None:
        """Raises BadSum when `mean` is too large for the model that all had before, `anchor`; never under a guard."""
        if self.guard is None:
            self.bound.times(gain).check(mean, anchor, len(self.group.ids))

    async def all_have(self, key: Key) -> None:
        """Wait until every member holds the result of this sum in place, as this one does from now on."""
        if self._in_place is not None:
            await self._in_place.all_have(_number(key, STAGES - 1))

    async def buffer(self, count: int, dtype: torch.dtype, key: Key) -> Tensor | None:
        """The buffer in which this peer's next vector is summed in place, without a copy; None if there is none."""
        sums = await self._shared(count, dtype)
        return None if sums is None else sums.slot(_number(key, 0))

    def _turn(self, key: Key, stage: int) -> Turn:
        return (*key, stage if self.guard is None else _GUARDED + stage)

    async def _begin(self, key: Key) -> Group:
        """The present group, for one more sum. If its epoch differs from that of `key`, this attempt is over and about
        to be cancelled: it must not take part in the new group, and waits for that."""
        group = self.group
        if group.epoch != key[0]:
            await asyncio.get_running_loop().create_future()
        self._in_place = None
        self.inbox.advance(key)
        return group

    async def _shared(self, count: int, dtype: torch.dtype) -> Sums | None:
        """The shared memory for sums of such vectors; None if the members share none, or have another schedule."""
        if not self.shares_memory:
            return None
        group = self.group
        segment = await self._commons.segment(bytes_for(count, dtype, len(group.ids)))
        if segment is None:
            return None
        if self._sums is None or not self._sums.are_of(segment, count, dtype):
            self._sums = Sums(segment, group.ids, group.rank, count, dtype, self.inbox.meter)
        return self._sums
