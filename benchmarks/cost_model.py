"""The cost model against real processes on links that the kernel shapes: every schedule, and the one that is chosen.

    python benchmarks/cost_model.py [--link 300mbit] [--peers 2,4,8] [--size 1MiB,4MiB,16MiB,64MiB] [--turns 3]
                                    [--quick] [--json FILE]

The peers measure their links themselves (latency, bandwidth, what a message and an addition cost), and predict from
that what each schedule takes for each size; then all are measured in turn. The error is the predicted time's, of the
measured one. What is chosen is what `--schedule auto` goes by; that is good when it takes at most a tenth longer than
the best. There is no rival row: none of the rivals predicts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from _sums import OurSums
from common import MISSED, SKIPPED, Row, grid_parser, show, with_usual
from netns import Town, enter, host, shape_own

from samovar.aggregation.schedules.cost import Links, choose
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.peers.machine.process_memory import keep_freed_memory
from samovar.peers.settings.link_text import parse_size
from samovar.protocols.link_quality.reachability import Prober, measure, measure_overhead

GOAL_ERROR, GOAL_CHOICES, GOOD = 0.25, 0.9, 1.1
REDUCED_BYTES = 4 << 20


# A peer


class Scheduled(OurSums):
    """On TCP, by whatever schedule is asked for."""

    def __init__(self, index: int, peers: int) -> None:
        super().__init__("TCP", index, peers, host(index), apart=True)
        Prober(self.endpoint, lambda: self.membership.view.members)

    async def taken_by(self, name: str, elements: int) -> float:
        self.schedule = SCHEDULES[name]
        vector = torch.full((elements,), self.index + 1.0)
        began = time.perf_counter()
        total = await self.result(vector)
        taken = time.perf_counter() - began
        assert bool((total == self.right).all()), f"{name}: a wrong sum"
        return taken

    async def about_links(self) -> dict[str, float]:
        """What this peer measures: the way to the next one."""
        ids = self.membership.view.ids
        following = ids[(ids.index(self.endpoint.id) + 1) % len(ids)]
        rtt_s, Bps = await measure(self.endpoint, following, loads=3)
        overhead_s = await measure_overhead(self.endpoint, following)
        one, other = torch.ones(REDUCED_BYTES // 4), torch.ones(REDUCED_BYTES // 4)
        began = time.perf_counter()
        for _ in range(10):
            one.add_(other)
        gamma_s = (time.perf_counter() - began) / 10 / REDUCED_BYTES
        chunk_bytes = self.endpoint.chunk_bytes(following)
        return {"alpha": rtt_s / 2, "Bps": Bps, "overhead": overhead_s, "gamma": gamma_s, "chunk": chunk_bytes}


async def take_part(rate: str, peers: int, index: int, line: Connection) -> None:
    async def exchange(what: Any) -> list[Any]:
        line.send(what)
        return list(await asyncio.to_thread(line.recv))

    shape_own(rate, "reno")
    system = Scheduled(index, peers)
    await system.open(exchange)
    line.send("ready")
    while (order := await asyncio.to_thread(line.recv)) is not None:
        line.send(await (system.about_links() if order == "links" else system.taken_by(*order)))
    system.close()
    line.send("closed")


def peer_process(rate: str, peers: int, index: int, line: Connection) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    asyncio.run(take_part(rate, peers, index, line))


# All of them


def links_of(told: list[dict[str, float]]) -> tuple[Links, int]:
    """What all measured: each its own up-link, which is as fast as its down-link here."""
    rates = tuple(one["Bps"] for one in told)
    links = Links(
        alpha_s=tuple(one["alpha"] for one in told),
        up_Bps=rates,
        down_Bps=rates,
        gamma_s_per_byte=statistics.median(one["gamma"] for one in told),
        overhead_s=statistics.median(one["overhead"] for one in told),
    )
    return links, int(statistics.median(one["chunk"] for one in told))


def cell(town: Town, peers: int, size: str, rate: str, turns: int) -> list[Row]:
    """All schedules for one number of peers and one size."""
    nbytes = int(parse_size(size))
    town.tell("links")
    links, chunk_bytes = links_of(town.hear())
    choice = choose(SCHEDULES.values(), links, nbytes, chunk_bytes)
    times: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    for _ in range(turns):
        for name in SCHEDULES:
            town.tell((name, nbytes // 4))
            times[name].append(max(town.hear()))
    measured = {name: statistics.median(taken) for name, taken in times.items()}
    chosen = choice.steady.schedule.name
    rows: list[Row] = []
    for prediction in choice.predictions:
        name = prediction.schedule.name
        rows.append({
            "work": f"{name}, {peers} peers, {size}, {rate}", "system": "samovar", "median_s": measured[name],
            "ratio": None, "goal": None, "predicted_s": prediction.seconds,
            "error": abs(prediction.seconds / measured[name] - 1), "chosen": name == chosen,
            "over_best": measured[name] / min(measured.values()),
        })  # fmt: skip
        mark = "  chosen" if name == chosen else ""
        print(f"{rows[-1]['work']:<44} measured {1e3 * measured[name]:>9.1f} ms, predicted "
              f"{1e3 * prediction.seconds:>9.1f} ms, error {rows[-1]['error']:>6.1%}{mark}", flush=True)  # fmt: skip
    return rows


def main() -> int:
    options = _options()
    if why_not := enter():
        print(f"network namespaces with shaped links cannot be made here: {why_not}", file=sys.stderr)
        return SKIPPED
    rows: list[Row] = []
    for peers in map(int, options.peers.split(",")):
        with ExitStack() as ends:
            town = Town(ends, peers, partial(peer_process, options.link, peers))
            town.shape(options.link)
            while (heard := town.hear()) != ["ready"] * peers:
                town.tell(heard)
            for size in options.size.split(","):
                rows += cell(town, peers, size, options.link, options.turns)
            town.tell(None)
            town.hear()
    show(rows, options.json)
    error = statistics.median(row["error"] for row in rows)
    choices = [row["over_best"] <= GOOD for row in rows if row["chosen"]]
    print(f"median error {error:.1%}, goal {GOAL_ERROR:.0%}; the chosen one within a tenth of the best in "
          f"{sum(choices)} of {len(choices)} cells, goal {GOAL_CHOICES:.0%}")  # fmt: skip
    return MISSED if error > GOAL_ERROR or sum(choices) < GOAL_CHOICES * len(choices) else 0


def _options() -> argparse.Namespace:
    parser = grid_parser(__doc__)
    parser.add_argument("--link", default="300mbit", help="the rate of each peer's link")
    options = parser.parse_args()
    return with_usual(options, *(("4", "1MiB,16MiB", 1) if options.quick else ("2,4,8", "1MiB,4MiB,16MiB,64MiB", 3)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
