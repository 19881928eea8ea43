"""Processes with a peer of each system in every one of them, and what the systems take, interleaved.

Used by what measures an exchange of vectors between several peers: allreduce.py, gossip.py.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from _processes import Room
from _systems import WAYS, System
from common import Row, rows_of
from netns import Town, shape_own

from samovar.peers.machine.process_memory import keep_freed_memory

MIB = 1 << 20
LINK_GOAL = 0.95
"""Of the bound."""
LINK_WAYS, _LINK_TCP = ("TCP", "CURVE"), "reno"
_TRIES = 5


@dataclass(frozen=True)
class Work:
    """Who takes part, and where: on links of `rate`, or on this machine."""

    peers: int
    ways: list[str]
    rate: str
    store: str
    """A file for Gloo to meet at; others may be beside it."""


SystemOf = Callable[[str, Work, int], System]
"""The system of that name, of the peer with that number: a function of a module, as processes import it."""


# A peer


async def _take_part(system_of: SystemOf, work: Work, index: int, line: Connection, start: Any) -> None:
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


def _peer_process(system_of: SystemOf, start: Any, index: int, line: Connection) -> None:
    """One work after another, until the line is closed."""
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        while True:
            work = line.recv()
            if work.rate:
                shape_own(work.rate, _LINK_TCP)
                os.environ["GLOO_SOCKET_IFNAME"] = "cable"
            asyncio.run(_take_part(system_of, work, index, line, start))
    finally:
        start.abort()  # nobody waits for one that failed


# All of them


def place_of(ends: ExitStack, peers: int, system_of: SystemOf, *, linked: bool) -> Room:
    """So many processes: on this machine, or each behind a link of its own."""
    start = multiprocessing.get_context("spawn").Barrier(peers)
    ends.callback(start.abort)  # so that it is there as long as they are
    return (Town if linked else Room)(ends, peers, partial(_peer_process, system_of, start))


class Company:
    """Processes with all systems in each; what one does the others do at the same time."""

    def __init__(self, place: Room, peers: int, ways: list[str], rate: str) -> None:
        if isinstance(place, Town):
            place.shape(rate)
        self.place = place
        with tempfile.NamedTemporaryFile() as unused:
            place.tell(Work(peers, ways, rate, unused.name))
        while (heard := place.hear()) != ["ready"] * peers:
            place.tell(heard)

    def times(self, way: str, nbytes: int) -> list[float]:
        """Of some exchanges, what the slowest peer took; small ones are repeated. A rival's wrong ones count for
        nothing."""
        for _ in range(_TRIES):
            self.place.tell((way, nbytes // 4, 10 if nbytes <= MIB else 1))
            taken = [max(times) for times in zip(*self.place.hear(), strict=True)]
            if math.isfinite(max(taken)):
                return taken
            print(f"{way} gave a wrong result: measured anew", file=sys.stderr)
        raise RuntimeError(f"{way} gave {_TRIES} wrong results, one after another")

    def measure(self, nbytes: int, ways: list[str], turns: int) -> dict[str, list[float]]:
        """Seconds of each system, turn by turn, after one to warm up."""
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(turns + 1):
            for way in ways:
                taken = self.times(way, nbytes)
                if turn:
                    times[way] += taken
        return times

    def part(self) -> None:
        """Its systems are closed when this returns."""
        self.place.tell(None)
        self.place.hear()


def compared(
    work: str,
    rate: str,
    times: Mapping[str, Sequence[float]],
    goals: Mapping[tuple[str, str], float],
    bound_s: float | None,
) -> list[Row]:
    """For each rival a row, and those of our ways beside it. `goals`: by our way and the rival. `bound_s`: what links
    of `rate` need at least; None: they are not shaped."""
    work, rows = work + (f", {rate}" if rate else ""), list[Row]()
    ours, rivals = [way for way in times if way in WAYS], [way for way in times if way not in WAYS]
    for rival in rivals:
        for way in ours:
            own, goal = f"samovar, {way}", None if rate else goals.get((way, rival))
            both = rows_of(work, {rival: times[rival], own: times[way]}, own, rival, goal)
            rows += [row | {"against": rival} for row in both if row["system"] == own or way == ours[0]]
    if not rivals:
        alone = {"work": work, "ratio": None, "goal": None}
        rows = [alone | {"system": f"samovar, {way}", "median_s": statistics.median(times[way])} for way in ours]
    for row in rows if bound_s is not None else []:
        row["bound_fraction"] = bound_s / row["median_s"]
        row["goal_bound_fraction"] = None if row["system"] in rivals else LINK_GOAL
    return rows


def below_bound(rows: list[Row]) -> bool:
    """Print how much of the links each system uses; whether one of ours uses less than its goal."""
    for row in {(row["work"], row["system"]): row for row in rows}.values():
        goal = row["goal_bound_fraction"]
        print(f"{row['work']:<44} {row['system']:<18} {row['bound_fraction']:>6.3f} of the bound", end="")
        print(f", goal {goal:g}" if goal else "")
    return any(row["bound_fraction"] < (row["goal_bound_fraction"] or 0.0) for row in rows)
