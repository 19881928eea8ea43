"""The systems that benchmarks/allreduce.py measures: each sums, or averages, one vector after another."""

from __future__ import annotations

import torch
import torch.distributed as dist
from _environments import HIVEMIND
from _systems import IN_MEMORY, Elsewhere, Exchange, Gloo, Ours
from torch import Tensor

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.protocols.channel import Channel
from samovar.protocols.collectives.reducer import Reducer, on_one_machine
from samovar.protocols.local_sgd.commit import Verdicts
from samovar.protocols.local_sgd.rounds import LOCAL_SGD


class OurSums(Ours):
    """A peer that sums and commits, on one of our ways."""

    def __init__(self, way: str, index: int, peers: int, host: str, *, apart: bool) -> None:
        """`apart`: each peer is on a machine of its own, with a link of its own."""
        super().__init__(way, index, peers, host)
        self.apart = apart

    def set_up(self) -> None:
        one, channel = self.endpoint, Channel(self.endpoint, LOCAL_SGD)
        self.reducer = Reducer(channel, lambda group: self.schedule, lambda: self.membership.view.group(one.id))
        self.verdicts = Verdicts(channel, self.membership, lambda: self.round, None)

    async def vector(self, elements: int) -> Tensor:
        if self.way in IN_MEMORY:
            self.schedule = SCHEDULES["sharded"]
        else:
            self.schedule = SCHEDULES["ring"] if self.apart else on_one_machine(4 * elements)
        if self.way != "memory":
            return torch.empty(elements)
        slot = await self.reducer.buffer(elements, torch.float32, (0, self.round + 1))
        assert slot is not None, "this machine has no memory to share"
        return slot

    async def result(self, vector: Tensor) -> Tensor:
        key = (self.membership.view.generation, self.round + 1)
        total = await self.reducer.sum(vector, key)
        if self.reducer.in_place:
            await self.reducer.all_have(key)
        else:
            await self.verdicts.reach(key, 0)
        self.round += 1
        return total

    @property
    def right(self) -> float:
        return self.peers * (self.peers + 1) / 2


class GlooSums(Gloo):
    """It sums in place, so it is given a fresh vector each time."""

    def exchanged(self, vector: Tensor) -> Tensor:
        dist.all_reduce(vector)
        return vector

    @property
    def right(self) -> float:
        return self.peers * (self.peers + 1) / 2


class Hivemind(Elsewhere):
    """DecentralizedAverager: what we measure is what the first of its processes does."""

    def __init__(self, index: int, peers: int, host: str) -> None:
        super().__init__(HIVEMIND, "_hivemind_peer.py", index=index, peers=peers, host=host)

    async def open(self, exchange: Exchange) -> None:
        own = [] if self.about["index"] else (await self.tell(self.about | {"contacts": []}))["addresses"]
        first, *_ = await exchange(own)
        if self.about["index"]:
            await self.tell(self.about | {"contacts": first})
