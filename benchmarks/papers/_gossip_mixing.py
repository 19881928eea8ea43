"""The studies of `gossip.py` in which peers learn nothing, and only mix: rates, sums that are conserved, groups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import torch
from _absent import absent
from _common import Claim, Curve, Found, Row
from _cut_links import conserved
from _mixing import begun, distances, mixed, rate
from _plain_choco import on_a_ring

from samovar.aggregation.mixing.registry import parse_topology
from samovar.aggregation.mixing.spectrum import rho

RATES = (
    ("ring", 64, 420, 250), ("wheel", 64, 600, 360), ("star", 64, 120, 20), ("torus", 64, 120, 40),
    ("regular:4", 64, 120, 50), ("exponential", 64, 40, 16), ("slim_fly", 50, 24, 8), ("slim_fly", 98, 24, 10),
)  # fmt: skip
"""Topology, peers, rounds, and the round from which on the slowest mode alone is left: the next one has less than 1 %
of the squared distance."""
QUICK_RATES = (("ring", 8, 40, 12), ("torus", 9, 24, 8), ("exponential", 16, 40, 20))
ON_A_RING: Mapping[str, Mapping[int, float]] = {"0.01 0.04": {500: 1e-3, 2000: 2.4e-12}, "0.1 0.34": {500: 4e-27}}
"""CHOCO on a ring of nine, vectors of 2,000 elements: the share of the elements and the consensus step -> rounds -> the
squared distance that is left."""
WITHOUT = (2.8e-2, 8e-4, 2.6e-5)
"""The squared distance that is left after 3, 6 and 9 rounds of Moshpit with a tenth of the peers absent in each."""
BY_CHANCE = 15 / 64 + 16 / 64**2
"""The factor by which the squared distance of 64 peers falls, in the mean, in a round in 16 random groups of 4 that all
are there: Moshpit's Theorem 3.2, (r - 1) / N + r / N^2."""
NOISE = 1.1
"""A mean of random runs may be so much above a number that was found so, too."""
CURVES: dict[str, Curve] = {}
"""The curves of the figure: distances of what was mixed."""


def draw(name: str, apart: Sequence[float]) -> None:
    CURVES[name] = [(round, math.log10(one)) for round, one in enumerate(apart) if one > 1e-12]


def rates(quick: bool) -> Found:
    rows, worst = list[Row](), 0.0
    for name, peers, rounds, since in QUICK_RATES if quick else RATES:
        apart = distances(peers, rounds, topology=name)
        measured, foretold = rate(apart, since), -math.log(rho(parse_topology(name), peers))
        worst = max(worst, abs(measured / foretold - 1))
        rows.append({"work": "a: -ln of the factor of a round", "system": f"{name}, {peers}", "measured": measured,
                     "foretold": foretold})  # fmt: skip
        draw(f"{name}, {peers}", apart)
    peers = 8 if quick else 64
    exact = distances(peers, round(math.log2(peers)), topology="one_peer_exponential")[-1]
    goal = "the measured rate within 5 % of the spectral gap's; one-peer exponential exact after log2 n rounds"
    ours = f"at most {worst:.2%} beside it; {exact:.1e} of the distance is left after {math.log2(peers):.0f} rounds"
    claim = Claim("consensus distance falls by rho in a round", goal, ours, worst <= 0.05 and exact < 1e-12)
    return rows, [claim]


def push_sum(quick: bool) -> Found:
    peers, rows, runs = 8 if quick else 16, list[Row](), []
    for share, broken in (("20 %", 0.2), ("none", 0.0)):
        found = conserved(peers, 60, broken=broken, seed=1)
        runs.append(found)
        rows.append({"work": f"b: push-sum in int64, {share} of the transfers broken off", "system": f"{peers} peers",
                     "transfers": found.transfers, "broken_off": found.broken, "came_back": found.back,
                     "exact": found.exact, "error": found.error, "error_without_weights": found.unweighted,
                     "least_weight": found.weights[0], "most_weight": found.weights[1]})  # fmt: skip
    cut, whole = runs
    ours = f"{cut.broken} of {cut.transfers} transfers broken off, {cut.back} shares came back, the sum is "
    ours += f"{'the same to the last bit' if cut.exact else 'ANOTHER'}, the mean is right to {cut.error:.1e}"
    goal = "20 % of the transfers broken off: mass conserved exactly, and the mean right to 1e-6"
    held = cut.exact and cut.error < 1e-6 and 5 * cut.broken >= cut.transfers
    paper = "push-sum gives the mean if no message is lost"
    unbroken = f"{whole.error:.1e}, with weights from {whole.weights[0]:.2f} to {whole.weights[1]:.2f}; "
    unbroken += f"{whole.unweighted:.2g} without weights"
    right = "errors of at most 2e-9 after 60 rounds, and above 0.1 without weights"
    fits = whole.error <= 2e-9 and whole.unweighted > 0.1
    return rows, [
        Claim(paper, goal, ours, held),
        Claim("weights make up for an irregular graph", right, unbroken, fits),
    ]


def choco(quick: bool) -> Found:
    rows, told, held, off = list[Row](), list[str](), True, 0.0
    for name, levels in ON_A_RING.items():
        share, step = name.split()
        rounds = 50 if quick else max(levels)
        apart = distances(9, rounds, 2000, topology="ring", algorithm=f"choco:{step}", codec=f"top_k:{share}")
        plain = on_a_ring(9, rounds, 2000, float(share), float(step))
        draw(f"CHOCO, top {share}", apart)
        for at, most in {rounds: math.inf}.items() if quick else levels.items():
            left = apart[at] ** 2
            rows.append({"work": f"e: CHOCO on a ring of 9, top {share}, step {step}", "system": f"{at} rounds",
                         "left": left, "plain": plain[at], "known": most})  # fmt: skip
            told.append(f"top {share}: {left:.1e} after {at}")
            held, off = held and left <= NOISE * most, max(off, abs(left / plain[at] - 1))
    goal = "squared distance 1e-3 after 500 rounds and 2.4e-12 after 2,000 with the top 1 %, 4e-27 after 500 with 10 %"
    alike = "within 1 % of the plain algorithm's squared distances, from the same vectors"
    return rows, [
        Claim("consensus is linear whatever the codec", goal, ", ".join(told), None if quick else held),
        Claim("CHOCO-gossip, Algorithm 1", alike, f"{off:.3%} off", off <= 0.01),
    ]


def moshpit(quick: bool) -> Found:
    exact = distances(64, 3, algorithm="moshpit:3")[-1]
    runs = [absent(9, 0.1, seed) for seed in range(2 if quick else 20)]
    draws = [[one.squares[after] for one in runs] for after in (2, 5, 8)]
    left = [statistics.mean(each) for each in draws]
    falls = all(now < before for one in runs for before, now in zip((1.0, *one.squares), one.squares, strict=False))
    moved = max(one.mean_moved for one in runs)
    draw("moshpit:3, a tenth absent", [1.0, *(math.sqrt(one) for one in runs[0].squares)])
    row = {"work": "f: Moshpit, 4 x 4 x 4", "system": "moshpit:3", "left_after_3": exact,
           "squares_after_3_6_9_with_a_tenth_absent": left, "mean_moved": moved,
           "squares_by_random_groups": [BY_CHANCE**rounds for rounds in (3, 6, 9)]}  # fmt: skip
    ours = f"{exact:.1e} of the distance is left; with a tenth absent, of its square {left[0]:.1e}, {left[1]:.1e}, "
    ours += f"{left[2]:.1e} after 3, 6 and 9 (random groups without an absent one: {BY_CHANCE**3:.1e}, "
    ours += f"{BY_CHANCE**6:.1e}, {BY_CHANCE**9:.1e}); the mean has moved by {moved:.0e}"
    goal = "exact after 3 rounds; with a tenth absent in each, 2.8e-2 / 8e-4 / 2.6e-5 of the squared distance is left "
    goal += "after 3, 6 and 9, but for two standard errors of 20 draws; it never grows, and the mean stays"
    errors = [statistics.stdev(each) / math.sqrt(len(each)) for each in draws]
    near = all(one - 2 * error <= most for one, error, most in zip(left, errors, WITHOUT, strict=True))
    held = exact < 1e-12 and falls and moved < 1e-12 and (quick or near)
    return [row], [Claim("d rounds along d axes give the mean", goal, ours, held)]


def pairings(quick: bool) -> Found:
    """AD-PSGD without learning: a peer's every round is one average with a random neighbour."""
    peers, rounds = 16, 60 if quick else 6250
    began = torch.stack([begun(part, 8) for part in range(peers)])
    ended = mixed(peers, rounds, 8, algorithm="ad_psgd", topology="exponential")[-1]
    moved = float((ended.mean(0) - began.mean(0)).norm() / began.norm())
    left = float((ended - ended.mean(0)).norm() / (began - began.mean(0)).norm())
    row = {"work": "d: AD-PSGD, random pairs", "system": "ad_psgd", "pairs": peers * rounds, "mean_moved": moved,
           "left": left}  # fmt: skip
    ours = f"{peers * rounds} averages, {left:.0e} of the distance is left, the mean has moved by {moved:.0e}"
    goal = "random pairs average without a deadlock, and the mean of all stays"
    return [row], [Claim("no deadlock on any graph", goal, ours, moved <= 1e-12 + left)]
