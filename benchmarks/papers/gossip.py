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
import statistics
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from _common import Claim, Found, Row, chart, conclude, parser, studied
from _gossip_mixing import CURVES, choco, moshpit, pairings, push_sum, rates
from _gossip_runs import accuracy_and_bytes, equal, paces, ran, steps_in_ring
from _tasks import mlp_s

D_PSGD: Mapping[str, Any] = {"protocol": "gossip", "topology": "exponential"}
LAGS = (10, 10, 11, 12, 13, 14, 15, 16, 17)
"""Local steps of peers in a ring while one of them takes ten, by their distance from it: PAPERS.md, G1."""


def crossover(quick: bool) -> Found:
    systems: Mapping[str, Mapping[str, Any]] = {
        "allreduce": {"protocol": "allreduce"},
        "D-PSGD, exponential": D_PSGD,
        "D-PSGD, ring": {"protocol": "gossip", "topology": "ring"},
    }
    rows, gains = list[Row](), {name: dict[float, float]() for name in systems if name != "allreduce"}
    level, steps = (2.1, 120) if quick else (1.6, 480)
    for latency_ms in (10.0,) if quick else (0.1, 0.3, 1.0, 3.0, 10.0):
        times = {}
        for name, settings in systems.items():
            groups = equal(16, f"100mbit,{latency_ms}ms", 0.01)
            run = ran(mlp_s(0, 0.1), groups, period="1", steps=steps, evaluate_every=8, **settings)
            times[name] = run.reached_s(level)
            rows.append({"work": f"c: seconds to a loss of {level}, {latency_ms} ms", "system": name,
                         "seconds": times[name]})  # fmt: skip
        for name, of_it in gains.items():
            of_it[latency_ms] = times["allreduce"] / times[name]
    told = [f"{name}: " + ", ".join(f"{ms} ms: {gain:.2f}" for ms, gain in of_it.items()) + f"; {_crossing(of_it)}"
            for name, of_it in gains.items()]  # fmt: skip
    ours, goal = f"allreduce's time over that of {'. '.join(told)}", "faster than allreduce at 10 ms and 100 Mbit/s"
    faster = max(of_it[10.0] for of_it in gains.values()) > 1
    return rows, [Claim("D-PSGD is faster on slow networks", goal, ours, faster)]


def _crossing(gains: Mapping[float, float]) -> str:
    """The latency from which on one is faster than allreduce, between two that were tried by their logarithms."""
    for (below, less), (above, more) in pairwise(gains.items()):
        if less < 1 <= more:
            share = math.log(1 / less) / math.log(more / less)
            return f"crosses at {below * (above / below) ** share:.2g} ms"
    return "does not cross"


def rounds(quick: bool) -> Found:
    """How long a round takes on a ring, and the loss after as many steps as by allreduce."""
    took, until_s = dict[str, float](), 1.0 if quick else 4.0
    rings: Mapping[str, Mapping[str, Any]] = {
        "ring allreduce": {"schedule": "ring"}, "ring gossip": {**D_PSGD, "topology": "ring"},
    }  # fmt: skip
    for name, settings in rings.items():
        run = ran(mlp_s(0, 0.1), equal(16, "10gbit,5ms", 1e-4), until_s, period="1", steps=10**9,
                  evaluate_every=10**6, **settings)  # fmt: skip
        first, *_, last = run.of(0)
        took[name] = 1e3 * (last.time_s - first.time_s) / (last.version - first.version)
    rows: list[Row] = [{"work": "c: ms a round, 16 peers, 5 ms", "system": name, "ms": ms} for name, ms in took.items()]
    losses = dict[str, float]()
    equally: Mapping[str, Mapping[str, Any]] = {"allreduce": {}, "D-PSGD, exponential": D_PSGD}
    for name, settings in equally.items():
        run = ran(mlp_s(0, 0.1), equal(16, "100mbit,5ms", 0.01), period="1", steps=60 if quick else 1000,
                  evaluate_every=10**6, **settings)  # fmt: skip
        losses[name] = statistics.mean(run.ends)
        rows.append({"work": "c: loss after equal steps, 16 peers", "system": name, "loss": losses[name]})
    gain, more = took["ring allreduce"] / took["ring gossip"], losses["D-PSGD, exponential"] / losses["allreduce"] - 1
    return rows, [
        Claim("a round is 2 messages deep, not 2 (n - 1)", "a round in 1/5 of ring allreduce's time at 5 ms, 16 peers",
              f"{took['ring gossip']:.1f} ms beside {took['ring allreduce']:.1f}: 1/{gain:.0f}", gain >= 5),
        Claim("as good as centralised in equal iterations", "the peers' mean loss at most 1 % above allreduce's",
              f"{more:+.2%}", None if quick else more <= 0.01),
    ]  # fmt: skip


def straggler(quick: bool) -> Found:
    until_s, rows, kept = (3.0 if quick else 20.0), list[Row](), dict[str, float]()
    for algorithm in ("ad_psgd", "d_psgd"):
        clean, slowed = (
            min(paces(until_s, 0.05, slow, algorithm=algorithm, period="4", **D_PSGD)[:15]) for slow in (1.0, 10.0)
        )
        kept[algorithm] = slowed / clean
        rows.append({"work": "d: exchanges of the slowest of the fast peers", "system": algorithm, "clean": clean,
                     "beside_a_slow_peer": slowed, "share": slowed / clean})  # fmt: skip
    ours = f"AD-PSGD: {kept['ad_psgd']:.0%} of their speed, D-PSGD: {kept['d_psgd']:.0%}"
    paper, goal = "no peer waits for a slow one", "AD-PSGD: the others keep at least 90 % of their speed"
    return rows, [Claim(paper, goal, ours, kept["ad_psgd"] >= 0.9)]


def in_100_steps(quick: bool) -> Found:
    """Sixteen peers, one of which takes ten times as long for a step, while the others could take 100. The quick form
    is to take a minute, and goes without."""
    if quick:
        return [], []
    until_s, link = 100.5, "10gbit,10us"
    made = {
        "allreduce": paces(until_s, 1.0, 10.0, link, period="1"),
        "AD-PSGD": paces(until_s, 1.0, 10.0, link, period="1", algorithm="ad_psgd", **D_PSGD),
    }
    lags = steps_in_ring(until_s, 10.0)
    work = "d: exchanges of 16 peers while 15 could take 100 steps"
    rows: list[Row] = [
        {"work": work, "system": name, "all": sum(each), "slow": each[15], "least": min(each[:15])}
        for name, each in made.items()
    ]
    rows.append({"work": "d: D-PSGD on a ring, by distance from the slow peer", "system": "ring", "steps": lags})
    total = sum(made["AD-PSGD"])
    return rows, [
        Claim("AD-PSGD: a slow peer costs its own share only", "at least 1,300 of 1,510; by allreduce 10 each",
              f"{total}; by allreduce {max(made['allreduce'])} each", total >= 1300 and max(made["allreduce"]) == 10),
        Claim("D-PSGD only delays a slow peer's effect", f"{', '.join(map(str, LAGS))} by distance from it",
              ", ".join(map(str, lags)), lags == [*LAGS]),
    ]  # fmt: skip


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


STUDIES: Mapping[str, tuple[Callable[[bool], Found], ...]] = {
    "a": (rates,),
    "b": (push_sum,),
    "c": (crossover, rounds),
    "d": (straggler, in_100_steps, pairings),
    "e": (compressed, choco),
    "f": (moshpit,),
    "g": (periods,),
}


def main() -> int:
    known = parser(__doc__, "gossip")
    known.add_argument("--only", metavar="LETTERS", help="these studies only, as in abf")
    options = known.parse_args()
    rows, claims = list[Row](), list[Claim]()
    for letter, studies in STUDIES.items():
        if options.only is None or letter in options.only:
            print(f"{letter} ...", flush=True)
            found, told = studied(studies, quick=options.quick)
            rows, claims = rows + found, claims + told
    figure = chart("Consensus distance", "rounds", "log10", CURVES) if CURVES else None
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
