"""The systems that benchmarks/allreduce.py measures: one peer of each, in a process that has one of every system."""

from __future__ import annotations

import asyncio
import json
import math
import random
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from _hivemind import PYTHON
from torch import Tensor

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.protocols.channel import Channel
from samovar.protocols.collectives.reducer import Reducer, on_one_machine
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd.commit import Verdicts
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.members.attached import Standing
from samovar.protocols.members.membership import Membership, Terms
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.members.view import Attributes, Decree, Member, Version
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

WAYS = ("memory", "copied", "TCP", "CURVE")
"""Of our own."""
Exchange = Callable[[Any], Awaitable[list[Any]]]
"""Tell all peers something, and hear what each told."""
AllReady = Callable[[], Awaitable[object]]


class System(Protocol):
    """A peer that sums, or averages, one vector after another."""

    async def open(self, exchange: Exchange) -> None: ...

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        """Seconds from its vector to the result, which is checked; it begins when all are ready. Infinite: what a
        rival gave was wrong."""

    def close(self) -> None: ...


class Here(ABC):
    """A system that is in this process."""

    index: int
    peers: int

    async def vector(self, elements: int) -> Tensor:
        """Where this peer's vectors are to be."""
        return torch.empty(elements)

    @abstractmethod
    async def sum(self, vector: Tensor) -> Tensor: ...

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        vector = await self.vector(elements)
        vector.fill_(self.index + 1.0)
        await all_ready()
        began = time.perf_counter()
        total = await self.sum(vector)
        taken = time.perf_counter() - began
        assert bool((total == self.peers * (self.peers + 1) / 2).all()), f"{type(self).__name__}: a wrong sum"
        return taken


class Ours(Here):
    """A peer that sums and commits, on one of our ways."""

    def __init__(self, way: str, index: int, peers: int, host: str, *, apart: bool) -> None:
        """`apart`: each peer is on a machine of its own, with a link of its own."""
        self.way, self.index, self.peers, self.round, self.apart = way, index, peers, 0, apart
        keys = KeyPair.new() if way == "CURVE" else None
        transport = ZeroMQTransport(keys, listen=f"tcp://{host}:0")
        self.endpoint = Endpoint(transport, patience_s=30, rng=random.Random(index))

    async def open(self, exchange: Exchange) -> None:
        one = self.endpoint
        await one.open()
        everyone = await exchange((one.id, one.address))
        for other, address in everyone:
            if other != one.id:
                one.dial(other, address)
        await exchange("all admitted")
        machine = one.machine if self.way in ("memory", "copied") else ""
        channel = Channel(one, LOCAL_SGD)
        self.membership = Membership(
            Channel(one, MEMBERS),
            Member(one.id, str(self.index), one.address, Attributes(data_shard=self.index), 0, machine),
            Terms(run="b", layout="", model="", founders=self.peers),
        )
        self.membership.attach(self)
        self.reducer = Reducer(channel, lambda group: self.schedule, lambda: self.membership.view.group(one.id))
        self.verdicts = Verdicts(channel, self.membership, lambda: self.round, None)
        if self.index == 0:
            self.membership.found()
        else:
            await self.membership.knock(everyone[0][0])
            await self.membership.join(everyone[0][0])
        await self.membership.until(lambda: self.membership.settled)

    def standing(self) -> Standing:
        return Standing(Version(self.round, 0), Version(self.round, 0))

    def installed(self, decree: Decree) -> None:
        pass

    async def vector(self, elements: int) -> Tensor:
        if self.way in ("memory", "copied"):
            self.schedule = SCHEDULES["sharded"]
        else:
            self.schedule = SCHEDULES["ring"] if self.apart else on_one_machine(4 * elements)
        if self.way != "memory":
            return torch.empty(elements)
        slot = await self.reducer.buffer(elements, torch.float32, (0, self.round + 1))
        assert slot is not None, "this machine has no memory to share"
        return slot

    async def sum(self, vector: Tensor) -> Tensor:
        key = (self.membership.view.generation, self.round + 1)
        total = await self.reducer.sum(vector, key)
        if self.reducer.in_place:
            await self.reducer.all_have(key)
        else:
            await self.verdicts.reach(key, 0)
        self.round += 1
        return total

    def close(self) -> None:
        self.membership.close()
        self.endpoint.abort()


class Gloo(Here):
    """What torch.distributed does by default on a CPU. It sums in place, so it is given a fresh vector each time."""

    def __init__(self, index: int, peers: int, store: str) -> None:
        self.index, self.peers, self.store = index, peers, store

    async def open(self, exchange: Exchange) -> None:
        await asyncio.to_thread(
            dist.init_process_group,
            "gloo", init_method=f"file://{self.store}", rank=self.index, world_size=self.peers,
        )  # fmt: skip

    async def sum(self, vector: Tensor) -> Tensor:
        if vector.nbytes <= 1 << 20:
            dist.all_reduce(vector)
        else:  # long enough for the other systems to wonder whether this process lives
            await asyncio.to_thread(dist.all_reduce, vector)
        return vector

    def close(self) -> None:
        dist.destroy_process_group()


class Hivemind:
    """DecentralizedAverager, in processes of its own: what we measure is what the first of them does."""

    def __init__(self, index: int, peers: int, host: str) -> None:
        self.about = {"index": index, "peers": peers, "host": host}
        script = Path(__file__).with_name("_hivemind_peer.py")
        self.process = subprocess.Popen(
            [PYTHON, "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def open(self, exchange: Exchange) -> None:
        own = [] if self.about["index"] else (await self.tell(self.about | {"contacts": []}))["addresses"]
        first, *_ = await exchange(own)
        if self.about["index"]:
            await self.tell(self.about | {"contacts": first})

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        await self.tell({"elements": elements})
        await all_ready()
        seconds = (await self.tell({"average": True}))["seconds"]
        return math.inf if seconds is None else seconds

    async def tell(self, order: dict[str, Any]) -> dict[str, Any]:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = await asyncio.to_thread(self.process.stdout.readline)
        if not line:
            raise RuntimeError("hivemind failed: see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
