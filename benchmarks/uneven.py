"""Parts by bandwidth: what an allreduce takes where links differ, with equal parts and with those of the closed form.

    python benchmarks/uneven.py [--quick] [--json FILE]

Real peers' code in virtual time; the schedule is `sharded`, the latency 5 ms. A vector takes the slowest link 20 s one
way. The first rounds, in which links learn what they carry, do not count; every sum is checked. The ratio is the time
with equal parts over ours; beside it how much longer than the closed form it takes (`aggregation/shares.py`, from
BytePS, OSDI 2020, theorem 1), which knows of neither latency nor headers, nor that a part comes back behind its sum.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence

import torch
from _simulated import connected
from common import Row, arguments, missed, show

from samovar.aggregation.schedules.known import SCHEDULES
from samovar.aggregation.shares import bottleneck, shares
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.reduction.allreduce import allreduce
from samovar.protocols.reduction.chunks import Inbox
from samovar.sims.loop import run_virtual
from samovar.sims.network import Network

WARM, ROUNDS, SLOWEST_S, LATENCY_S = 2, 3, 20.0, 0.005
MBIT = 125_000
CASES: dict[str, tuple[tuple[float, ...], float]] = {
    "2 peers at 100 Mbit/s, 6 at 1": ((100.0,) * 2 + (1.0,) * 6, 1.6),
    "3 peers at 100 Mbit/s, 1 at 10": ((100.0,) * 3 + (10.0,), 1.4),
    "4 peers at 40 Mbit/s, 4 at 10": ((40.0,) * 4 + (10.0,) * 4, 1.6),
}
"""The links, in Mbit/s; and how much the parts are to gain, of what the closed form says nine tenths or so."""


async def taken(links: Sequence[float], size: int, cut: tuple[float, ...] | None) -> float:
    """Seconds that a sum of `size` elements takes, the median."""
    network = Network(LinkSpec(bandwidth_Bps=100 * MBIT, latency_s=LATENCY_S), seed=1)
    for index, rate in enumerate(links):
        network.links[f"peer-{index}"] = LinkSpec(bandwidth_Bps=rate * MBIT, latency_s=LATENCY_S)
    peers = await connected(network, len(links), lambda index: [other for other in range(len(links)) if other != index])
    inboxes, ids, clock, times = [Inbox(peer) for peer in peers], [peer.id for peer in peers], _now, []

    async def one(peer: Endpoint, inbox: Inbox, index: int, turn: int) -> None:
        own = torch.full((size,), index + 1.0)
        total = await allreduce(peer, inbox, ids, SCHEDULES["sharded"], own, turn=(1, turn, 0), shares=cut)
        assert bool((total == len(ids) * (len(ids) + 1) / 2).all()), "a wrong sum"

    for turn in range(1, WARM + ROUNDS + 1):
        began = clock()
        await asyncio.gather(*(one(*each, turn) for each in zip(peers, inboxes, range(len(peers)), strict=True)))
        times.append(clock() - began)
    for peer in peers:
        peer.abort()
    return statistics.median(times[WARM:])


def _now() -> float:
    return asyncio.get_running_loop().time()


def main() -> int:
    options = arguments(__doc__)
    rows: list[Row] = []
    for work, (links, goal) in list(CASES.items())[: 1 if options.quick else None]:
        has_data, size = [True] * len(links), round(SLOWEST_S * min(links) * MBIT / 4)
        equal, ours = (1 / len(links),) * len(links), shares(links, has_data)
        for system, cut, ratio in (("equal parts", equal, None), ("samovar, parts by bandwidth", ours, goal)):
            seconds = run_virtual(taken(links, size, tuple(cut)), seed=1)
            least_s = bottleneck(cut, links, has_data) * 4 * size / MBIT
            gained = None if ratio is None else rows[-1]["median_s"] / seconds
            rows.append({"work": work, "system": system, "median_s": seconds, "ratio": gained, "goal": ratio})
            rows[-1]["over_closed_form"] = seconds / least_s
    show(rows, options.json)
    for row in rows:
        print(f"{row['work']:<44} {row['system']:<28} {row['over_closed_form']:.3f} of what the closed form says")
    return missed(rows)


if __name__ == "__main__":
    sys.exit(main())
