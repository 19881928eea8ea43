"""Allreduce of real processes on this machine: ours on each of its ways beside Gloo and Hivemind, interleaved.

    python benchmarks/allreduce.py [--peers 2,4,8] [--size 4KiB,1MiB,16MiB,64MiB] [--against gloo,hivemind]
                                   [--link 100mbit,1gbit] [--turns 9] [--quick] [--json FILE]

Ours: `memory`, which peers on one machine share, with the vectors in it, as gradients' buckets are; `copied`, the same
from tensors elsewhere; `TCP`, unencrypted as Gloo; `CURVE`, encrypted as Hivemind. A time is from the peer's tensor to
the committed result, on the peer that takes longest; every result is checked. The ratio is the rival's time over ours,
turn by turn. The goals are those of two idle cores.

With `--link` each peer is in a network namespace of its own, and the kernel (`tc ... tbf`, Reno) holds what it sends
and receives to that rate: 4 peers and 64 MiB, unless said otherwise, over TCP and CURVE. The bound is what p peers need
to send 2 (p - 1) / p times the vector at that rate. It knows nothing of packets' headers, which take 4.4 %, nor of the
20 ms worth of data that an idle link may send at once.

Hivemind averages, which costs it no more than to sum. It is installed on first use, in an environment of its own. Where
its mean is wrong, as when a peer of its came too late, that is told and measured anew.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from _hivemind import install
from _processes import Room
from _systems import WAYS, Gloo, Hivemind, Ours, System
from common import MISSED, SKIPPED, Row, grid_parser, missed, rows_of, show, with_usual
from netns import Town, enter, host, shape_own

from samovar.peers.machine.process_memory import keep_freed_memory
from samovar.peers.settings.link_text import parse_rate, parse_size

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
LINK_GOAL = 0.95
"""Of the bound."""
RIVALS = ("gloo", "hivemind")
TRIES = 5
LINK_WAYS, LINK_TCP = ("TCP", "CURVE"), "reno"


@dataclass(frozen=True)
class Work:
    """Who sums, and where: on links of `rate`, or on this machine."""

    peers: int
    ways: list[str]
    rate: str
    store: str
    """A file for Gloo to meet at."""


# A peer


async def take_part(work: Work, index: int, line: Connection, start: Any) -> None:
    async def exchange(what: Any) -> list[Any]:
        line.send(what)
        return list(await asyncio.to_thread(line.recv))

    systems = {way: system_of(way, work, index) for way in work.ways}
    for system in systems.values():
        await system.open(exchange)
    line.send("ready")
    while (order := await asyncio.to_thread(line.recv)) is not None:
        way, elements, repeats = order
        line.send([
            await systems[way].taken(elements, partial(asyncio.to_thread, start.wait)) for _ in range(repeats)
        ])  # fmt: skip
    for system in systems.values():
        system.close()
    line.send("closed")


def system_of(way: str, work: Work, index: int) -> System:
    address = host(index) if work.rate else "127.0.0.1"
    if way == "gloo":
        return Gloo(index, work.peers, work.store)
    if way == "hivemind":
        return Hivemind(index, work.peers, address)
    return Ours(way, index, work.peers, address, apart=bool(work.rate))


def peer_process(start: Any, index: int, line: Connection) -> None:
    """One work after another, until the line is closed."""
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        while True:
            work = line.recv()
            if work.rate:
                shape_own(work.rate, LINK_TCP)
                os.environ["GLOO_SOCKET_IFNAME"] = "cable"
            asyncio.run(take_part(work, index, line, start))
    finally:
        start.abort()  # nobody waits for one that failed


# All of them


class Company:
    """Processes with all systems in each; what one does the others do at the same time."""

    def __init__(self, place: Room, peers: int, ways: list[str], rate: str) -> None:
        self.place = place
        with tempfile.NamedTemporaryFile() as unused:
            place.tell(Work(peers, ways, rate, unused.name))
        while (heard := place.hear()) != ["ready"] * peers:
            place.tell(heard)

    def times(self, way: str, nbytes: int) -> list[float]:
        """Of some sums, what the slowest peer took; small ones are repeated. A rival's wrong ones count for nothing."""
        for _ in range(TRIES):
            self.place.tell((way, nbytes // 4, 10 if nbytes <= MIB else 1))
            taken = [max(times) for times in zip(*self.place.hear(), strict=True)]
            if math.isfinite(max(taken)):
                return taken
            print(f"{way} gave a wrong result: measured anew", file=sys.stderr)
        raise RuntimeError(f"{way} gave {TRIES} wrong results, one after another")

    def part(self) -> None:
        """Its systems are closed when this returns."""
        self.place.tell(None)
        self.place.hear()


def measure(nbytes: int, company: Company, ways: list[str], turns: int) -> dict[str, list[float]]:
    """Seconds of each system, turn by turn, after one to warm up."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way in ways:
            taken = company.times(way, nbytes)
            if turn:
                times[way] += taken
    return times


def rows_for(times: dict[str, list[float]], peers: int, size: str, rate: str) -> list[Row]:
    """For each rival a row, and those of our ways beside it."""
    nbytes, rows = int(parse_size(size)), []
    work = f"allreduce, {peers} peers, {size}" + (f", {rate}" if rate else "")
    ours, rivals = [way for way in times if way in WAYS], [way for way in times if way not in WAYS]
    for rival in rivals:
        for way in ours:
            own, goal = f"samovar, {way}", None if rate else GOALS.get((way, rival, peers, nbytes))
            both = rows_of(work, {rival: times[rival], own: times[way]}, own, rival, goal)
            rows += [row | {"against": rival} for row in both if row["system"] == own or way == ours[0]]
    if not rivals:
        alone = {"work": work, "ratio": None, "goal": None}
        rows = [alone | {"system": f"samovar, {way}", "median_s": statistics.median(times[way])} for way in ours]
    for row in rows if rate else []:
        row["bound_fraction"] = 2 * (peers - 1) / peers * nbytes / parse_rate(rate) / row["median_s"]
        row["goal_bound_fraction"] = None if row["system"] in rivals else LINK_GOAL
    return rows


def below_bound(rows: list[Row]) -> bool:
    """Print how much of the links each system uses; whether one of ours uses less than its goal."""
    for row in {(row["work"], row["system"]): row for row in rows}.values():
        goal = row["goal_bound_fraction"]
        print(f"{row['work']:<44} {row['system']:<18} {row['bound_fraction']:>6.3f} of the bound", end="")
        print(f", goal {goal:g}" if goal else "")
    return any(row["bound_fraction"] < (row["goal_bound_fraction"] or 0.0) for row in rows)


def main() -> int:
    options = _options()
    rivals = [rival for rival in options.against.split(",") if rival]
    if "hivemind" in rivals and (why_not := install()):
        print(f"without hivemind, which cannot be installed here: {why_not}", file=sys.stderr)
        rivals.remove("hivemind")
        sys.argv += ["--against", ",".join(rivals)]  # enter() starts this script again
    if options.link and (why_not := enter()):
        print(f"network namespaces with shaped links cannot be made here: {why_not}", file=sys.stderr)
        return SKIPPED
    ways, rows = [*(LINK_WAYS if options.link else WAYS), *rivals], []
    for peers in map(int, options.peers.split(",")):
        inhabitant = partial(peer_process, multiprocessing.get_context("spawn").Barrier(peers))
        with ExitStack() as ends:
            place = (Town if options.link else Room)(ends, peers, inhabitant)
            for rate in options.link.split(","):
                if isinstance(place, Town):
                    place.shape(rate)
                company = Company(place, peers, ways, rate)
                for size in options.size.split(","):
                    times = measure(int(parse_size(size)), company, ways, options.turns)
                    rows += rows_for(times, peers, size, rate)
                company.part()
    show(rows, options.json)
    slow = below_bound(rows) if options.link else False
    return missed([row for row in rows if row["goal"] is not None]) or (MISSED if slow else 0)


def _options() -> argparse.Namespace:
    parser = grid_parser(__doc__)
    parser.add_argument("--against", default="gloo", help="rivals")
    parser.add_argument("--link", default="", help="rates of the links between the peers")
    options = parser.parse_args()
    if options.link:
        usual = ("4", "16MiB", 2) if options.quick else ("4", "64MiB", 3)
    else:
        usual = ("4", "4KiB,1MiB,64MiB", 5) if options.quick else ("2,4,8", "4KiB,1MiB,16MiB,64MiB", 9)
    with_usual(options, *usual)
    if unknown := {*options.against.split(",")} - {*RIVALS, ""}:
        parser.error(f"there is no rival {unknown.pop()!r}: there are {', '.join(RIVALS)}")
    if options.link and "," in options.peers:
        parser.error("--link takes one number of peers")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
