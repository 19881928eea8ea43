"""Gossip against what its papers foretell: D-PSGD (Lian et al., arXiv 1705.09056), AD-PSGD (arXiv 1710.06952), push-sum
(Assran et al., arXiv 1811.10792), CHOCO (Koloskova et al., arXiv 1902.00340), Moshpit (Ryabinin et al., arXiv
2103.03239), and an adaptive period (arXiv 1810.08313) over gossip.

    python benchmarks/papers/gossip.py [--quick] [--json FILE] [--figure FILE] [--only LETTERS]

All runs are simulated, by the library's own protocol, in virtual time.

    a  how fast peers that only mix come together, beside the spectral gap of their graph
    b  push-sum in whole numbers over links that break: is the sum of all vectors what it was, to the last bit
    c  D-PSGD and allreduce, 16 peers, 100 Mbit/s: time to a loss for some latencies
    d  one of sixteen peers takes ten times as long for a step: the exchanges of the others
    e  CHOCO with the largest 1 % of the elements: accuracy and bytes, beside D-PSGD
    f  Moshpit on a grid of 4 x 4 x 4 peers, also with a tenth of the peers absent in each round
    g  an adaptive period over gossip, beside fixed ones: time to a loss
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from _common import Claim, Curve, chart, conclude, parser
from _cut_links import conserved
from _gossip_runs import accuracy_and_bytes, equal, paces, ran
from _mixing import distances, rate
from _tasks import mlp_s

from samovar.aggregation.mixing.grid import Grid
from samovar.aggregation.mixing.registry import parse_topology
from samovar.aggregation.mixing.spectrum import rho
from samovar.aggregation.mixing.weights import matrix

Row = dict[str, Any]
Found = tuple[list[Row], list[Claim]]
RATES = (
    ("ring", 64, 420, 250), ("wheel", 64, 240, 60), ("star", 64, 120, 20), ("torus", 64, 120, 40),
    ("regular:4", 64, 120, 40), ("exponential", 64, 40, 12), ("slim_fly", 50, 24, 8), ("slim_fly", 98, 24, 8),
)  # fmt: skip
"""Topology, peers, rounds, and the round from which on the slowest mode alone is left."""
QUICK_RATES = (("ring", 8, 40, 12), ("torus", 9, 24, 8), ("exponential", 16, 20, 8))
CURVES: dict[str, Curve] = {}
"""The curves of the figure: distances of what was mixed."""


def rates(quick: bool) -> Found:
    rows, worst = list[Row](), 0.0
    for name, peers, rounds, since in QUICK_RATES if quick else RATES:
        apart = distances(peers, rounds, topology=name)
        measured, foretold = rate(apart, since), -math.log(rho(parse_topology(name), peers))
        worst = max(worst, abs(measured / foretold - 1))
        rows.append({"work": "a: -ln of the factor of a round", "system": f"{name}, {peers}", "measured": measured,
                     "foretold": foretold})  # fmt: skip
        CURVES[f"{name}, {peers}"] = [(round, math.log10(one)) for round, one in enumerate(apart) if one > 1e-12]
    peers = 8 if quick else 64
    exact = distances(peers, round(math.log2(peers)), topology="one_peer_exponential")[-1]
    goal = "the measured rate within 5 % of the spectral gap's; one-peer exponential exact after log2 n rounds"
    ours = f"at most {worst:.2%} beside it; {exact:.1e} of the distance is left after {math.log2(peers):.0f} rounds"
    claim = Claim("consensus distance falls by rho in a round", goal, ours, worst <= 0.05 and exact < 1e-12)
    return rows, [claim]


def push_sum(quick: bool) -> Found:
    found = conserved(8 if quick else 16, 60, broken=0.2, seed=1)
    row = {"work": "b: push-sum, 20 % of the transfers broken off", "system": "int64", "transfers": found.transfers,
           "broken_off": found.broken, "came_back": found.back, "exact": found.exact, "error": found.error}  # fmt: skip
    ours = f"{found.broken} transfers broken off, {found.back} shares came back, the sum is "
    ours += f"{'the same to the last bit' if found.exact else 'ANOTHER'}, the mean is right to {found.error:.1e}"
    goal = "mass conserved exactly, and the mean right to 1e-6"
    return [row], [
        Claim("push-sum gives the mean if no message is lost", goal, ours, found.exact and found.error < 1e-6)
    ]


def crossover(quick: bool) -> Found:
    systems: Mapping[str, Mapping[str, str]] = {
        "allreduce": {"protocol": "allreduce"},
        "D-PSGD, exponential": {"protocol": "gossip", "topology": "exponential"},
        "D-PSGD, ring": {"protocol": "gossip", "topology": "ring"},
    }
    rows, faster = list[Row](), list[str]()
    level, until_s = (2.1, 4.0) if quick else (1.6, 12.0)
    for latency in ("10ms",) if quick else ("100us", "300us", "1ms", "3ms", "10ms"):
        times = {}
        for name, settings in systems.items():
            groups = equal(16, f"100mbit,{latency}", 0.01)
            run = ran(mlp_s(0, 0.1), groups, until_s, period="1", steps=10**9, evaluate_every=8, **settings)
            times[name] = run.reached_s(level)
            rows.append({"work": f"c: seconds to a loss of {level}, {latency}", "system": name, "seconds": times[name]})
        faster.append(
            f"{latency}: {times['allreduce'] / min(times.values()):.2f} ({min(times, key=times.__getitem__)})"
        )
    ours = "allreduce's time over the best: " + ", ".join(faster)
    at_10ms = float(faster[-1].split()[1])
    return rows, [Claim("D-PSGD is faster on slow networks", "faster than allreduce at 10 ms", ours, at_10ms > 1)]


def straggler(quick: bool) -> Found:
    until_s, rows, kept = (3.0 if quick else 20.0), list[Row](), dict[str, float]()
    for algorithm in ("ad_psgd", "d_psgd"):
        clean, slowed = (min(paces(algorithm, slow, until_s)) for slow in (False, True))
        kept[algorithm] = slowed / clean
        rows.append({"work": "d: exchanges of the slowest of the fast peers", "system": algorithm, "clean": clean,
                     "beside_a_slow_peer": slowed, "share": slowed / clean})  # fmt: skip
    ours = f"AD-PSGD: {kept['ad_psgd']:.0%} of their speed, D-PSGD: {kept['d_psgd']:.0%}"
    paper, goal = "no peer waits for a slow one", "AD-PSGD: the others keep at least 90 % of their speed"
    return rows, [Claim(paper, goal, ours, kept["ad_psgd"] >= 0.9)]


def compressed(quick: bool) -> Found:
    steps = 16 if quick else 1600
    plain, sent = accuracy_and_bytes(steps, algorithm="d_psgd")
    coarse, less = accuracy_and_bytes(steps, algorithm="choco:0.04", codec="top_k:0.01")
    rows = [
        {"work": "e: digits, 38,410 parameters", "system": system, "accuracy": accuracy, "bytes": count}
        for system, accuracy, count in (("D-PSGD", plain, sent), ("CHOCO, top 1 %", coarse, less))
    ]
    ours = f"accuracy {coarse:.4f} beside {plain:.4f}, at {sent / less:.0f} times fewer bytes"
    held = None if quick else coarse >= plain - 0.01 and sent >= 30 * less
    goal = "within 1 % of D-PSGD's accuracy at 30 times fewer bytes"
    return rows, [Claim("any compression converges, at 100 times fewer bits", goal, ours, held)]


def moshpit(quick: bool) -> Found:
    exact = distances(64, 3, algorithm="moshpit:3")[-1]
    left = _absent(Grid(3), 64, 0.1)
    row = {"work": "f: Moshpit, 4 x 4 x 4", "system": "moshpit:3", "left_after_3": exact,
           "left_after_3_6_9_of_10_percent_absent": left}  # fmt: skip
    ours = (
        f"{exact:.1e} of the distance is left; with a tenth absent {left[0]:.1e}, {left[1]:.1e}, {left[2]:.1e} after "
    )
    ours += "3, 6 and 9"
    goal = "exact after 3 rounds; it falls whoever is absent (plain means of those there: 2.8e-2, 8e-4, 2.6e-5)"
    held = exact < 1e-12 and left[2] < left[1] < left[0] < 1
    return [row], [Claim("d rounds along d axes give the mean", goal, ours, held)]


def _absent(graph: Grid, peers: int, share: float) -> list[float]:
    """The distance after 3, 6 and 9 rounds, of the one before, when in each round so many peers are absent, and leave
    their weights to those that ask them: the mean of 20 draws."""
    found = torch.zeros(3, dtype=torch.float64)
    for seed in range(20):
        chance = random.Random(seed)
        x = torch.randn(peers, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        mean = x.mean(0)
        began = (x - mean).norm()
        for number in range(1, 10):
            there = torch.tensor([chance.random() >= share for _ in range(peers)], dtype=torch.float64)
            weights = matrix(graph, peers, number) * there[:, None] * there
            weights += torch.diag(1 - weights.sum(1))
            x = weights @ x
            if number % 3 == 0:
                found[number // 3 - 1] += (x - mean).norm() / began / 20
    return found.tolist()


def periods(quick: bool) -> Found:
    """A local step takes 1 s, and an exchange as long as four."""
    rows, times = list[Row](), dict[str, float]()
    level, until_s = (2.4, 80.0) if quick else (1.35, 4000.0)
    for period in ("1", "16", "adaptive") if quick else ("1", "4", "16", "64", "adaptive"):
        run = ran(
            mlp_s(0, 0.3), equal(8, "1tbit,2s", 1.0), until_s, protocol="gossip", topology="exponential", period=period,
            period_initial=16, period_block_s=0.1 * until_s, steps=10**9, evaluate_every=4 if period == "1" else 1,
        )  # fmt: skip
        times[period] = run.reached_s(level)
        rows.append({"work": f"g: seconds to a loss of {level}", "system": period, "seconds": times[period]})
    ours = ", ".join(f"{period}: {seconds:.0f} s" for period, seconds in times.items())
    held = None if quick else times["adaptive"] <= times["1"] / 2
    paper = "AdaComm: 3 times faster than synchronous training"
    return rows, [Claim(paper, f"a loss of {level} in half of the time of period 1", ours, held)]


STUDIES: Mapping[str, Callable[[bool], Found]] = {
    "a": rates, "b": push_sum, "c": crossover, "d": straggler, "e": compressed, "f": moshpit, "g": periods,
}  # fmt: skip


def main() -> int:
    known = parser(__doc__, "gossip")
    known.add_argument("--only", metavar="LETTERS", help="these studies only, as in abf")
    options = known.parse_args()
    rows, claims = list[Row](), list[Claim]()
    for letter, study in STUDIES.items():
        if options.only is None or letter in options.only:
            print(f"{letter} ...", flush=True)
            found, told = study(options.quick)
            for row in found:
                print(
                    "  "
                    + ", ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())
                )
            rows, claims = rows + found, claims + told
    figure = chart("Consensus distance", "rounds", "log10", CURVES) if CURVES else None
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
