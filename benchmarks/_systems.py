"""Systems that exchange vectors: one peer of each, in a process that has one of every system. What allreduce.py and
gossip.py measure is made of these.
"""

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
from _environments import Environment
from torch import Tensor

from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.members.attached import Standing
from samovar.protocols.members.membership import Membership, Terms
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.members.view import Attributes, Decree, Member, Version
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

IN_MEMORY = ("memory", "copied")
WAYS = (*IN_MEMORY, "TCP", "CURVE")
"""Of our own."""
Exchange = Callable[[Any], Awaitable[list[Any]]]
"""Tell all peers something, and hear what each told."""
AllReady = Callable[[], Awaitable[object]]


class System(Protocol):
    """A peer that exchanges one vector after another."""

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
    async def result(self, vector: Tensor) -> Tensor: ...

    @property
    @abstractmethod
    def right(self) -> float:
        """Each element of the result, as all of a peer's vector are its index + 1."""

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        vector = await self.vector(elements)
        vector.fill_(self.index + 1.0)
        await all_ready()
        began = time.perf_counter()
        result = await self.result(vector)
        taken = time.perf_counter() - began
        assert bool(((result - self.right).abs() < 1e-5).all()), f"{type(self).__name__}: a wrong result"
        return taken


class Joined:
    """A peer with a membership, on one of our ways."""

    def __init__(self, way: str, index: int, peers: int, host: str) -> None:
        self.way, self.index, self.peers, self.round = way, index, peers, 0
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
        machine = one.machine if self.way in IN_MEMORY else ""
        self.membership = Membership(
            Channel(one, MEMBERS),
            Member(one.id, str(self.index), one.address, self.attributes, 0, machine),
            Terms(run="b", layout="", model="", founders=self.peers),
        )
        self.membership.attach(self)
        self.set_up()
        if self.index == 0:
            self.membership.found()
        else:
            await self.membership.knock(everyone[0][0])
            await self.membership.join(everyone[0][0])
        await self.membership.until(lambda: self.membership.settled)

    @property
    def attributes(self) -> Attributes:
        return Attributes(data_shard=self.index)

    def set_up(self) -> None:
        """Whatever it needs before it joins the others."""

    def standing(self) -> Standing:
        return Standing(Version(self.round, 0), Version(self.round, 0))

    def installed(self, decree: Decree) -> None:
        pass

    def close(self) -> None:
        self.membership.close()
        self.endpoint.abort()


class Ours(Joined, Here):
    """A peer of ours that exchanges vectors with all others."""


class Gloo(Here):
    """What torch.distributed does by default on a CPU."""

    def __init__(self, index: int, peers: int, store: str) -> None:
        self.index, self.peers, self.store = index, peers, store

    async def open(self, exchange: Exchange) -> None:
        await asyncio.to_thread(
            dist.init_process_group,
            "gloo", init_method=f"file://{self.store}", rank=self.index, world_size=self.peers,
        )  # fmt: skip

    @abstractmethod
    def exchanged(self, vector: Tensor) -> Tensor: ...

    async def result(self, vector: Tensor) -> Tensor:
        if vector.nbytes <= 1 << 20:
            return self.exchanged(vector)
        # Long enough for the other systems to wonder whether this process lives.
        return await asyncio.to_thread(self.exchanged, vector)

    def close(self) -> None:
        dist.destroy_process_group()


class Elsewhere:
    """A rival in processes of its own, which are told what to do in lines of JSON: the first line is about the peer."""

    def __init__(self, environment: Environment, script: str, **about: Any) -> None:
        self.name, self.about = environment.name, about
        self.process = subprocess.Popen(
            [environment.python, "-P", Path(__file__).with_name(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    async def open(self, exchange: Exchange) -> None:
        await self.tell(self.about)

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        await self.tell({"elements": elements})
        await all_ready()
        seconds = (await self.tell({"go": True}))["seconds"]
        return math.inf if seconds is None else seconds

    async def tell(self, order: dict[str, Any]) -> dict[str, Any]:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = await asyncio.to_thread(self.process.stdout.readline)
        if not line:
            raise RuntimeError(f"{self.name} failed: see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
