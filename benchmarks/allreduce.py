"""Allreduce of real processes on this machine: ours on each of its ways beside Gloo and Hivemind, interleaved.

    python benchmarks/allreduce.py [--peers 2,4,8] [--size 4KiB,1MiB,16MiB,64MiB] [--against gloo,hivemind]
                                   [--quick] [--json FILE]

Ours: `memory`, which peers on one machine share, with the vectors in it, as gradients' buckets are; `copied`, the same
from tensors elsewhere; `TCP`, unencrypted as Gloo; `CURVE`, encrypted as Hivemind. A time is from the peer's tensor to
the committed result, on the peer that takes longest; every result is checked. The ratio is the rival's time over ours,
turn by turn. The goals are those of two idle cores.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import Row, missed, rows_of, show
from torch import Tensor

from samovar.aggregation.schedules.known import SCHEDULES
from samovar.peers.links import parse_size
from samovar.peers.memory import keep_freed_memory
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.members.membership import Membership, Standing
from samovar.protocols.members.view import Member
from samovar.protocols.reduction.reducer import Reducer
from samovar.protocols.verdict import Verdicts
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

SMALL_BYTES = 256 * 1024
"""Up to here the schedule of few messages."""
WAYS = ("memory", "copied", "TCP", "CURVE")
MIB = 1 << 20
GOALS: dict[tuple[str, str, int, int], float] = {
    ("TCP", "gloo", 4, 4096): 3.0,
    ("TCP", "gloo", 4, MIB): 1.2,
    ("TCP", "gloo", 2, 64 * MIB): 1.0,
    ("TCP", "gloo", 4, 64 * MIB): 1.0,
    ("memory", "gloo", 4, 4096): 10.0,
    ("memory", "gloo", 4, MIB): 4.0,
    ("memory", "gloo", 2, 64 * MIB): 1.8,
    ("memory", "gloo", 4, 64 * MIB): 1.8,
    ("CURVE", "hivemind", 4, 64 * MIB): 3.0,
    ("CURVE", "hivemind", 4, MIB): 10.0,
}
"""By our way, the rival, peers and bytes: how much longer the rival is to take."""
Exchange = Callable[[Any], Awaitable[list[Any]]]


class Ours:
    """A peer that sums and commits, on one of our ways."""

    def __init__(self, way: str, index: int, peers: int) -> None:
        self.way, self.index, self.peers, self.round = way, index, peers, 0
        keys = KeyPair.new() if way == "CURVE" else None
        transport = ZeroMQTransport(keys, listen="tcp://127.0.0.1:0")
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
        self.membership = Membership(
            one, Member(one.id, str(self.index), one.address, self.index, 0, machine), run="b", layout="", model="",
            founders=self.peers, quorum=None, standing=lambda: Standing(self.round, 0), installed=lambda *_: None,
        )  # fmt: skip
        self.reducer = Reducer(one, lambda view: self.schedule, lambda: self.membership.view)
        self.verdicts = Verdicts(one, self.membership, lambda: self.round)
        if self.index == 0:
            self.membership.found()
        else:
            await self.membership.knock(everyone[0][0])
            await self.membership.join(everyone[0][0])
        await self.membership.until(lambda: self.membership.settled)

    async def vector(self, elements: int) -> Tensor:
        """Where this peer's vectors are to be."""
        nbytes = 4 * elements
        name = "halving_doubling" if nbytes <= SMALL_BYTES else "ring"
        self.schedule = SCHEDULES["sharded" if self.way in ("memory", "copied") else name]
        if self.way != "memory":
            return torch.full((elements,), self.index + 1.0)
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


class Gloo:
    """What torch.distributed does by default on a CPU. It sums in place, so it is given a fresh copy each time."""

    def __init__(self, index: int, peers: int, store: str) -> None:
        self.index = index
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=index, world_size=peers)

    async def vector(self, elements: int) -> Tensor:
        return torch.full((elements,), self.index + 1.0)

    async def sum(self, vector: Tensor) -> Tensor:
        dist.all_reduce(vector)
        return vector


async def take_part(index: int, peers: int, ways: list[str], store: str, line: Connection, start: Any) -> None:
    async def exchange(what: Any) -> list[Any]:
        line.send(what)
        return list(await asyncio.to_thread(line.recv))

    systems: dict[str, Ours | Gloo] = {way: Ours(way, index, peers) for way in ways if way in WAYS}
    for one in systems.values():
        assert isinstance(one, Ours)
        await one.open(exchange)
    if "gloo" in ways:
        systems["gloo"] = Gloo(index, peers, store)
    line.send("ready")
    while (order := await asyncio.to_thread(line.recv)) is not None:
        way, elements, repeats = order
        system, times = systems[way], []
        for _ in range(repeats):
            vector = await system.vector(elements)
            vector.fill_(index + 1.0)
            await asyncio.to_thread(start.wait)
            began = time.perf_counter()
            total = await system.sum(vector)
            times.append(time.perf_counter() - began)
            assert bool((total == peers * (peers + 1) / 2).all()), f"{way}: a wrong sum"
        line.send(times)
    for one in systems.values():
        if isinstance(one, Ours):
            one.membership.close()
            one.endpoint.abort()


def peer_process(index: int, peers: int, ways: list[str], store: str, line: Connection, start: Any) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    asyncio.run(take_part(index, peers, ways, store, line, start))


class Company:
    """`peers` processes, each with all systems in it; what one does the others do at the same time."""

    def __init__(self, peers: int, ways: list[str]) -> None:
        context = multiprocessing.get_context("spawn")
        start = context.Barrier(peers)
        self.lines: list[Connection] = []
        with tempfile.NamedTemporaryFile() as unused:
            store = unused.name
        for index in range(peers):
            ours, theirs = context.Pipe()
            context.Process(target=peer_process, args=(index, peers, ways, store, theirs, start), daemon=True).start()
            theirs.close()  # else the end of a peer that failed would not be seen here
            self.lines.append(ours)
        for _ in range(2 * sum(way in WAYS for way in ways)):
            self.tell([line.recv() for line in self.lines])
        for line in self.lines:
            line.recv()

    def tell(self, what: Any) -> None:
        for line in self.lines:
            line.send(what)

    def times(self, way: str, nbytes: int) -> list[float]:
        """Of some sums, what the slowest peer took; small ones are repeated."""
        self.tell((way, nbytes // 4, 10 if nbytes <= MIB else 1))
        return [max(times) for times in zip(*(line.recv() for line in self.lines), strict=True)]


def measure(peers: int, nbytes: int, company: Company, ways: list[str], turns: int) -> dict[str, list[float]]:
    """Seconds of each system, turn by turn, after one to warm up."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way in ways:
            taken = company.times(way, nbytes)
            if turn:
                times[way] += taken
    return times


def main() -> int:
    options = _options()
    rivals = [rival for rival in options.against.split(",") if rival]
    rows: list[Row] = []
    for peers in map(int, options.peers.split(",")):
        ways = [*WAYS, *rivals]
        company = Company(peers, ways)
        for size in options.size.split(","):
            nbytes = int(parse_size(size))
            times = measure(peers, nbytes, company, ways, options.turns)
            work = f"allreduce, {peers} peers, {size}"
            for rival in rivals:
                for way in WAYS:
                    goal = GOALS.get((way, rival, peers, nbytes))
                    beside = {f"samovar, {way}": times[way], rival: times[rival]}
                    rows += [
                        row | {"against": rival}
                        for row in rows_of(work, beside, f"samovar, {way}", rival, goal)
                        if row["ratio"] is not None or way == WAYS[0]
                    ]
        company.tell(None)
    show(rows, options.json)
    return missed([row for row in rows if row["goal"] is not None])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="2,4,8", help="numbers of peers")
    parser.add_argument("--size", default="4KiB,1MiB,16MiB,64MiB", help="bytes of the vectors of float32")
    parser.add_argument("--against", default="gloo", help="rivals")
    parser.add_argument("--turns", type=int, default=9, help="how often all are measured in turn")
    parser.add_argument("--quick", action="store_true", help="the headline rows only, within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a JSON list")
    options = parser.parse_args()
    if options.quick:
        options.peers, options.size, options.turns = "4", "4KiB,1MiB,64MiB", 5
    return options


if __name__ == "__main__":
    sys.exit(main())
