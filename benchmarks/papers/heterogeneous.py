"""Peers that are not equally fast: each at its own pace with FedNova's mean (Wang et al., arXiv 2007.07481), against
equal steps, and with AdaComm (arXiv 1810.08313).

    python benchmarks/papers/heterogeneous.py [--quick] [--json FILE] [--figure FILE]

Simulated peers, in virtual time. First, handwritten digits on four peers of which one is five times slower: what that
costs the other three, against a run without it. Then eight peers with different data (LOG-H, learning rate 0.03), two
with steps of 1 s and six with steps of 4 s, whose links make an averaging take 40 s: the time to 1.2 times the floor of
synchronous training, the mean of the seeds. That needs more time for it than all others have. Nothing is tuned to it: a
block of AdaComm lasts 7 % of the time there is.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import torch
from _common import Claim, Curve, arguments, chart, conclude
from _study import FLOOR, GRID_S, play, reached, smoothed
from _tasks import log_h

from samovar.peers.links import parse_link
from samovar.peers.records import RoundRecord
from samovar.peers.settings import Settings
from samovar.peers.task import Task, load_task
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world import World

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"
FAST_S, SLOW_S, PERIOD = 0.01, 0.05, 16
WITHOUT, EQUAL, OWN = "without it", "equal pace", "own pace"
AVERAGING_S, UNTIL_S, SYNCHRONOUS_UNTIL_S, LEVEL = 40.0, 12_000.0, 45_000.0, 1.2
QUICK = 0.25
"""Of the time."""
NEAR = "1tbit,500ms"
SYNCHRONOUS, ADAPTIVE = "1", "adaptive"


def played(
    task: Task, groups: Sequence[Group], until_s: float | None = None, **settings: Any
) -> tuple[World, list[RoundRecord]]:
    wished = Settings(peers=sum(group.peers for group in groups), device="cpu", **settings)
    return play(task, Scenario(settings=wished, groups=tuple(groups)), until_s)


@dataclass(frozen=True)
class Classified:
    """Of a run: local steps a second of a fast peer, and the accuracy of what all agreed on at the end."""

    steps_per_s: float
    accuracy: float


def classified(job: tuple[str, int, int]) -> Classified:
    name, steps, seed = job
    torch.set_num_threads(1)
    link = parse_link("100mbit,5ms")
    groups = [Group(peers=3, link=link, step_s=FAST_S), Group(peers=1, link=link, step_s=SLOW_S)]
    world, rounds = played(
        load_task(DIGITS), groups[:1] if name == WITHOUT else groups, period=str(PERIOD), steps=steps, seed=seed,
        pace="own" if name == OWN else "equal", evaluate_every=10**6,
    )  # fmt: skip
    mine = [record for record in rounds if record.peer == "0"]
    taken = sum(record.steps_per_s * record.compute_s for record in mine)
    accuracy = next(life.result.accuracy for life in world.lives if life.result and life.result.accuracy is not None)
    return Classified(taken / mine[-1].time_s, accuracy)


def mixed(latency_s: float) -> list[Group]:
    """Two fast peers, and six that are slow and far."""
    far = parse_link(f"1tbit,{round(1e6 * latency_s)}us")
    return [Group(peers=2, link=parse_link(NEAR), step_s=1.0), Group(peers=6, link=far, step_s=4.0)]


def latency_s() -> float:
    """Of the far peers, such that an averaging takes `AVERAGING_S`."""
    guess_s = 10.0
    for _ in range(2):  # once more, as on a slower link a schedule of fewer messages is chosen
        _, rounds = played(
            log_h(0, 0.03, peers=8), mixed(guess_s), 1500.0, period="1", steps=10**9, link=NEAR, patience_s=1e4
        )
        slow = [record for record in rounds if record.peer == "7"][5:]
        guess_s *= AVERAGING_S / statistics.median(one.wait_s + one.transfer_s for one in slow)
    return guess_s


def drifted(job: tuple[str, str, int], far_s: float, share: float) -> list[float]:
    """The distance of the loss to the least, over time."""
    period, pace, seed = job
    until_s = share * (SYNCHRONOUS_UNTIL_S if period == SYNCHRONOUS else UNTIL_S)
    torch.set_num_threads(1)
    _, rounds = played(
        log_h(seed, 0.03, peers=8), mixed(far_s), until_s, period=period, pace=pace, seed=seed, steps=10**9,
        evaluate_every=1, period_block_s=0.07 * share * UNTIL_S, patience_s=1e4,
    )  # fmt: skip
    return smoothed([record for record in rounds if record.accuracy is not None], until_s)


def on_digits(pool: Pool, steps: int, seeds: Sequence[int]) -> tuple[list[dict[str, Any]], list[Claim]]:
    names = (WITHOUT, EQUAL, OWN)
    done = pool.map(classified, [(name, steps, seed) for name in names for seed in seeds], chunksize=1)
    rows = []
    print(f"\n{'digits, one of four peers is 5 times slower':<46}{'steps/s of the others':>22}{'accuracy':>10}")
    for number, name in enumerate(names):
        found = done[number * len(seeds) : (number + 1) * len(seeds)]
        speed, accuracy = (statistics.fmean(getattr(one, key) for one in found) for key in ("steps_per_s", "accuracy"))
        rows.append({"work": "digits", "system": name, "steps_per_s": speed, "accuracy": accuracy})
        print(f"{name:<46}{speed:>22.1f}{accuracy:>10.4f}")
    share = rows[2]["steps_per_s"] / rows[0]["steps_per_s"]
    lost = rows[0]["accuracy"] - rows[2]["accuracy"]
    ours = f"{share:.3f}, at equal pace {rows[1]['steps_per_s'] / rows[0]['steps_per_s']:.3f}"
    return rows, [
        Claim("(ours)", "steps/s of the others at least 0.95 of those without the slow peer", ours, share >= 0.95),
        Claim("(ours)", "accuracy within 0.01 of a run without it", f"{lost:+.4f} lost", lost <= 0.01),
    ]


def on_log_h(pool: Pool, quick: bool) -> tuple[list[dict[str, Any]], list[Claim], dict[str, Curve]]:
    seeds, periods = range(1 if quick else 3), ("16", ADAPTIVE) if quick else ("8", "16", ADAPTIVE)
    systems = [(SYNCHRONOUS, "equal"), *((period, pace) for period in periods for pace in ("equal", "own"))]
    far_s = latency_s()
    jobs = [(*system, seed) for system in systems for seed in seeds]
    done = dict(
        zip(
            jobs, pool.map(partial(drifted, far_s=far_s, share=QUICK if quick else 1.0), jobs, chunksize=1), strict=True
        )
    )
    curves = {
        system: [statistics.fmean(at) for at in zip(*(done[*system, seed] for seed in seeds), strict=True)]
        for system in systems
    }
    floors = {system: statistics.fmean(curve[-round(FLOOR * len(curve)) :]) for system, curve in curves.items()}
    level = LEVEL * floors[SYNCHRONOUS, "equal"]
    times = {system: reached(curve, level) for system, curve in curves.items()}
    print(f"\nLOG-H, eight peers, far ones {far_s:.2f} s away: {'to 1.2 x the floor':>23}{'floor / synchronous':>22}")
    rows = []
    for (period, pace), time_s in times.items():
        over = floors[period, pace] / floors[SYNCHRONOUS, "equal"]
        print(f"{f'period {period}, {pace} pace':<46}{f'{time_s:.0f} s':>22}{over:>22.2f}")
        rows.append({"work": "LOG-H", "system": f"{period}, {pace}", "to_level_s": time_s, "floor": over})
    adaptive, own = times[ADAPTIVE, "equal"], times[ADAPTIVE, "own"]
    goal = "AdaComm with own pace at 1.2 of the synchronous floor 1.3 times sooner than with equal steps"
    ours = f"{own:.0f} s after {adaptive:.0f} s" if own > adaptive else f"{own:.0f} s before {adaptive:.0f} s"
    judged = None if quick else own * 1.3 <= adaptive
    drawn = {
        f"{period}, {pace}": [(GRID_S * (at + 1), loss) for at, loss in enumerate(curve)]
        for (period, pace), curve in curves.items()
    }
    return rows, [Claim("(ours, K1: a pace for each peer beats one period)", goal, ours, judged)], drawn


def main() -> int:
    options = arguments(__doc__, "heterogeneous")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows, claims = on_digits(pool, 1600, range(1 if options.quick else 3))
        more_rows, more_claims, drawn = on_log_h(pool, options.quick)
    figure = chart("LOG-H: loss above the least, over time", "virtual seconds", "loss", drawn)
    return conclude(options, rows + more_rows, claims + more_claims, figure)


if __name__ == "__main__":
    sys.exit(main())
