"""Parts by bandwidth: what an allreduce takes where links differ, with equal parts and with those of the closed form.

    python benchmarks/uneven.py [--quick] [--json FILE]

Real peers' code in virtual time; the schedule is `sharded`, the latency 5 ms. A vector takes the slowest link 20 s one
way. The first rounds, in which links learn what they carry, do not count; every sum is checked. The ratio is the time
with equal parts over ours, and the goal what the closed form (`aggregation/schedules/shares.py`, from BytePS, OSDI
2020) says of that; beside it how much longer than the closed form a sum takes, which knows of neither latency nor
headers, nor that a sum comes back behind what it is made of.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence

import torch
from _simulated import connected
from common import Row, arguments, missed, rows_of, show

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.shares import bottleneck, shares
from samovar.protocols.channel import Channel
from samovar.protocols.collectives.allreduce import allreduce
from samovar.protocols.group import Group
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.transfer.chunks import Inbox
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network

WARM, ROUNDS, SLOWEST_S, LATENCY_S = 2, 3, 20.0, 0.005
MBIT = 125_000
CASES: dict[str, tuple[float, ...]] = {
    "2 peers at 100 Mbit/s, 6 at 1": (100.0,) * 2 + (1.0,) * 6,
    "3 peers at 100 Mbit/s, 1 at 10": (100.0,) * 3 + (10.0,),
    "4 peers at 40 Mbit/s, 4 at 10": (40.0,) * 4 + (10.0,) * 4,
}
"""The links, in Mbit/s."""
WITHIN = 0.05
"""Of what the closed form says that parts gain."""


async def taken(links: Sequence[float], size: int, cut: tuple[float, ...]) -> float:
    """Seconds that a sum of `size` elements takes, the median."""
    network = Network(LinkSpec(bandwidth_Bps=100 * MBIT, latency_s=LATENCY_S), seed=1)
    for index, rate in enumerate(links):
        network.links[f"peer-{index}"] = LinkSpec(bandwidth_Bps=rate * MBIT, latency_s=LATENCY_S)
    peers = await connected(network, len(links), lambda index: [other for other in range(len(links)) if other != index])
    channels, ids = [Channel(peer, LOCAL_SGD) for peer in peers], [peer.id for peer in peers]
    inboxes = [Inbox(channel) for channel in channels]
    clock, times = asyncio.get_running_loop().time, list[float]()

    async def one(channel: Channel, inbox: Inbox, index: int, turn: int) -> None:
        own, group = torch.full((size,), index + 1.0), Group(tuple(ids), 1, index)
        total = await allreduce(channel, inbox, group, SCHEDULES["sharded"], own, stage_id=(1, turn, 0), shares=cut)
        assert bool((total == len(ids) * (len(ids) + 1) / 2).all()), "a wrong sum"

    for turn in range(1, WARM + ROUNDS + 1):
        began = clock()
        await asyncio.gather(*(one(*each, turn) for each in zip(channels, inboxes, range(len(peers)), strict=True)))
        times.append(clock() - began)
    for peer in peers:
        peer.abort()
    return statistics.median(times[WARM:])


def main() -> int:
    options = arguments(__doc__)
    rows: list[Row] = []
    for work, links in list(CASES.items())[: 1 if options.quick else None]:
        has_data, size = [True] * len(links), round(SLOWEST_S * min(links) * MBIT / 4)
        cuts = {"equal parts": (1 / len(links),) * len(links), "samovar": shares(links, has_data)}
        times = {system: [run_virtual(taken(links, size, cut), seed=1)] for system, cut in cuts.items()}
        least_s = {system: bottleneck(cut, links, has_data) * 4 * size / MBIT for system, cut in cuts.items()}
        goal = (1 - WITHIN) * least_s["equal parts"] / least_s["samovar"]
        rows += rows_of(work, times, "samovar", "equal parts", goal)
        for row in rows[-2:]:
            row["over_closed_form"] = row["median_s"] / least_s[row["system"]]
    show(rows, options.json)
    for row in rows:
        print(f"{row['work']:<44} {row['system']:<18} {row['over_closed_form']:.2f} times what the closed form says")
    return missed(rows)


if __name__ == "__main__":
    sys.exit(main())
