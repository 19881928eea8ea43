"""Synchronous data parallel with and without overlap: the same steps on the same links, in virtual time.

    python benchmarks/data_parallel.py [--quick] [--json FILE]

Backward takes its time layer by layer, as on a GPU; gradients go out bucket by bucket while it goes on, or all of them
when it has ended. Links have a latency of 10 ms. The ratio is the time without overlap over that with it; every mean is
checked. There is no rival row: what is compared is the overlap, on links that a rival cannot be given here.
"""

from __future__ import annotations

import asyncio
import sys

import torch
from _simulated import connected, joined
from common import MISSED, Row, arguments, show

from samovar.aggregation.buckets import buckets
from samovar.aggregation.vector import Layout
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.filling import Filling
from samovar.protocols.local_sgd.local_sgd import Contribution
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network

PEERS, LAYERS, LAYER, STEPS = 4, 16, 1 << 19, 6
"""16 layers of 2 MiB: 32 MiB of gradients."""
FORWARD_S, BACKWARD_S, WARM = 0.1, 0.2, 3
"""The first steps, in which links learn what they carry, do not count."""
EACH_BYTES = 4 << 20


class Node:
    """One peer: it computes, and averages."""

    def __init__(self, endpoint: Endpoint, index: int, schedule: str) -> None:
        self.layout = Layout.of({f"layer{number}": torch.zeros(LAYER) for number in range(LAYERS)})
        self.buckets = buckets(self.layout, each_bytes=EACH_BYTES)
        self.endpoint, self.index, self.schedule = endpoint, index, schedule

    async def run(self, *, overlap: bool) -> float:
        """Seconds that a step takes."""
        sgd = await joined(
            self.endpoint, self.index, first=0, founders=PEERS, layout=self.layout, schedule=self.schedule,
            steps=STEPS, buckets=self.buckets,
        )  # fmt: skip
        await sgd.gather()
        clock, began = asyncio.get_running_loop().time, 0.0
        for step in range(STEPS):
            if step == WARM:
                began = clock()
            await asyncio.sleep(FORWARD_S)
            filling = Filling(torch.full((self.layout.size,), float(self.index + step)), len(self.buckets))
            backward = asyncio.create_task(self._backward(filling))
            if not overlap:
                await backward
            outcome = await sgd.average(Contribution(filling.vector, 1.0, 1.0, 0.1, 0.0, filling))
            assert torch.allclose(outcome.state.vector, torch.tensor((PEERS - 1) / 2 + step))
        took_s = (clock() - began) / (STEPS - WARM)
        await sgd.membership.finish()
        sgd.membership.close()
        return took_s

    async def _backward(self, filling: Filling) -> None:
        for number, (start, stop) in enumerate(self.buckets):
            await asyncio.sleep(BACKWARD_S * (stop - start) / self.layout.size)
            filling.fill(number)


async def step_s(link: str, schedule: str, overlap: bool) -> float:
    network = Network(parse_link(link), 1)
    endpoints = await connected(network, PEERS, lambda index: list(range(PEERS)))
    nodes = [Node(endpoint, index, schedule) for index, endpoint in enumerate(endpoints)]
    took = await asyncio.gather(*(node.run(overlap=overlap) for node in nodes))
    for endpoint in endpoints:
        endpoint.abort()
    return max(took)


def main() -> int:
    options = arguments(__doc__)
    torch.set_num_threads(1)
    links = ["2gbit,10ms"] if options.quick else ["10gbit,10ms", "2gbit,10ms", "500mbit,10ms"]
    rows: list[Row] = []
    for link in links:
        for schedule in ("ring", "sharded", "halving_doubling"):
            without, with_it = (run_virtual(step_s(link, schedule, overlap)) for overlap in (False, True))
            work = f"a step on {link}, {schedule}"
            rows.append({"work": work, "system": "no overlap", "median_s": without, "ratio": None, "goal": None})
            rows.append({"work": work, "system": "samovar", "median_s": with_it, "ratio": without / with_it, "goal": 1})
    show(rows, options.json)
    slower = [row["work"] for row in rows if row["ratio"] is not None and row["ratio"] <= 1]
    for work in slower:
        print(f"overlap does not pay: {work}", file=sys.stderr)
    return MISSED if slower else 0


if __name__ == "__main__":
    sys.exit(main())
