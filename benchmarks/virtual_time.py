"""What a simulated peer costs: messages a second, averaging rounds of many groups, and members that only keep in touch.

    python benchmarks/virtual_time.py [--quick] [--json FILE]

Every result is checked: the mean of every group, and that every member was heard of. There is no rival row: no other
system of this field runs its own protocols in virtual time. What stands beside is a bare loop: queues and timers, no
protocol, no bandwidth, nothing that could go wrong. It tells what this machine gives today.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from _simulated import connected, joined
from common import MISSED, Row, arguments, show

from samovar.aggregation.vector import Layout
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.local_sgd.local_sgd import Contribution
from samovar.protocols.wire.frames import message
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network

LINK = LinkSpec(bandwidth_Bps=1.25e6, latency_s=0.02)
GROUP, ROUNDS, SIZE = 8, 50, 100
Plan = tuple[str, Callable[[int], Any], list[int]]
"""What is done, how, and with how many peers."""
GOAL_ROUNDS_S, GOAL_MESSAGES_PER_S, GOAL_MEMORY_BYTES = 60.0, 20_000, 2 << 30


@message("benchmark")
@dataclass(frozen=True, slots=True)
class Word:
    number: int


async def messages(count: int) -> int:
    """Every peer sends 100 control messages to its neighbour; returns how many frames were delivered."""
    network, heard = Network(LINK, 1), [0]

    def hear(envelope: Envelope) -> None:
        heard[0] += 1

    endpoints = await connected(network, count, lambda index: [(index + 1) % count, (index - 1) % count])
    for one in endpoints:
        Channel(one, "benchmark").on(Word, hear)
    for number in range(100):
        for index, one in enumerate(endpoints):
            Channel(one, "benchmark").post(f"peer-{(index + 1) % count}", Word(number))
        await asyncio.sleep(0.01)
    await asyncio.gather(*(one.drain() for one in endpoints))
    assert heard[0] == 100 * count
    for one in endpoints:
        one.abort()
    return network.delivered


async def bare(count: int) -> int:
    """The same messages as queue items that a timer brings to a task."""
    loop, heard = asyncio.get_running_loop(), [0]
    boxes: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(count)]

    async def listen(box: asyncio.Queue[int]) -> None:
        for _ in range(100):
            await box.get()
            heard[0] += 1

    listeners = [asyncio.create_task(listen(box)) for box in boxes]
    for number in range(100):
        for index in range(count):
            loop.call_later(LINK.latency_s, boxes[(index + 1) % count].put_nowait, number)
        await asyncio.sleep(0.01)
    await asyncio.gather(*listeners)
    return heard[0]


async def average(one: Endpoint, index: int, schedule: str) -> None:
    """One peer of a group of eight: rounds without training in between."""
    layout, first = Layout.of({"w": torch.zeros(SIZE)}), index - index % GROUP
    sgd = await joined(one, index, first=first, founders=GROUP, layout=layout, schedule=schedule, steps=ROUNDS)
    brought = Contribution(torch.full((SIZE,), float(index)), 1.0, 1.0, 0.1, 0.0)
    for _ in range(ROUNDS):
        outcome = await sgd.average(brought)
    assert torch.allclose(outcome.state.vector, torch.full((SIZE,), first + (GROUP - 1) / 2))
    await sgd.membership.finish()
    sgd.membership.close()


async def groups(count: int, schedule: str) -> int:
    network = Network(LINK, 1)
    endpoints = await connected(network, count, lambda index: [index - index % GROUP + i for i in range(GROUP)])
    await asyncio.gather(*(average(one, index, schedule) for index, one in enumerate(endpoints)))
    for one in endpoints:
        one.abort()
    return network.delivered


async def idle(count: int) -> int:
    """Members that watch their two neighbours for a virtual minute."""
    network = Network(LINK, 1)
    lost: list[str] = []
    endpoints = await connected(network, count, lambda index: [(index + 1) % count, (index - 1) % count])
    for index, one in enumerate(endpoints):
        one.on_lost.append(lambda peer, why: lost.append(peer))
        Channel(one, "benchmark").watch({f"peer-{(index + 1) % count}", f"peer-{(index - 1) % count}"})
    await asyncio.sleep(60)
    assert not lost
    assert network.delivered > 20 * count
    for one in endpoints:
        one.abort()
    return network.delivered


def rounds(schedule: str, counts: list[int]) -> Plan:
    return f"{ROUNDS} rounds in groups of {GROUP}, {schedule}", partial(groups, schedule=schedule), counts


def measure(work: str, run: Callable[[int], Any], count: int) -> Row:
    """In a process of its own: in a heap that another run has left its holes in, the same takes a quarter longer."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        return alone.submit(measured, work, run, count).result()


def measured(work: str, run: Callable[[int], Any], count: int) -> Row:
    torch.set_num_threads(1)
    began = time.perf_counter()
    delivered = run_virtual(run(count))
    seconds = time.perf_counter() - began
    return {
        "work": f"{work}, {count} peers",
        "system": "samovar",
        "median_s": seconds,
        "ratio": None,
        "goal": None,
        "messages_per_s": delivered / seconds,
        "s_per_peer": seconds / count,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> int:
    options = arguments(__doc__)
    plan: list[Plan] = [
        ("bare loop", bare, [1000]),
        ("messages", messages, [1000]),
        rounds("naive", [80, 1000]),
    ]
    if not options.quick:
        counts = [10, 100, 1000, 10_000]
        plan = [
            ("bare loop", bare, counts),
            ("messages", messages, counts),
            rounds("naive", [8, 80, 1000]),
            rounds("halving_doubling", [8, 80, 1000]),
            ("a virtual minute of heartbeats", idle, counts),
        ]
    rows = [measure(work, run, count) for work, run, counts in plan for count in counts]
    show(rows, options.json)
    for row in rows:
        print(f"{row['work']:<56} {row['messages_per_s']:>9.0f} messages/s {1e3 * row['s_per_peer']:>8.2f} ms a peer "
              f"{row['peak_memory_bytes'] / 2**20:>6.0f} MiB at most")  # fmt: skip
    misses = [row["work"] for row in rows if misses_its_goal(row)]
    for work in misses:
        print(f"misses its goal: {work}", file=sys.stderr)
    return MISSED if misses else 0


def misses_its_goal(row: Row) -> bool:
    if row["peak_memory_bytes"] > GOAL_MEMORY_BYTES:
        return True
    if row["work"].startswith("messages"):
        return bool(row["messages_per_s"] < GOAL_MESSAGES_PER_S)
    return "naive" in row["work"] and bool(row["median_s"] > GOAL_ROUNDS_S)


if __name__ == "__main__":
    sys.exit(main())
