"""Peers that are not equally fast: each at its own pace with FedNova's mean (Wang et al., arXiv 2007.07481), against
equal steps, and with control variates (SCAFFOLD, arXiv 1910.06378), against AdaComm (arXiv 1810.08313).

    python benchmarks/papers/heterogeneous.py [--quick] [--json FILE] [--figure FILE] [--only PROBLEM] [--seeds N]

Simulated peers, in virtual time. First, handwritten digits on four peers of which one is five times slower: what that
costs the other three, against a run without it. Then eight peers with different data (LOG-H, learning rate 0.03; MLP-S
with skew 0.9, learning rate 0.3), two with steps of 1 s and six with steps of 4 s, whose links make an averaging take
40 s: the times to some levels, and at last to one near the floor of synchronous training, which needs more time for it
than all others have; means of the seeds. A block of AdaComm lasts 7 % of the time there is, as it should; and 15 %, the
best for it on LOG-H, in hindsight.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _common import Claim, Curve, chart, conclude, parsed_with_seeds, parser
from _study import FLOOR, GRID_S, at_first, far_link, play, reached, smoothed
from _tasks import log_h, mlp_s

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import Task, load_task
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.world import World

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"
FAST_S, SLOW_S, PERIOD, STEPS = 0.01, 0.05, 16, 1600
WITHOUT, EQUAL, OWN = "without it", "equal pace", "own pace"
AVERAGING_S, UNTIL_S, SYNCHRONOUS_UNTIL_S = 40.0, 12_000.0, 45_000.0
QUICK = 0.06
"""Of the time."""
NEAR = "1tbit,500ms"


class Problem(NamedTuple):
    """`levels`: losses to reach, over the floor of synchronous training."""

    task: Callable[[int], Task]
    levels: tuple[float, ...]


PROBLEMS = {
    "LOG-H": Problem(lambda seed: log_h(seed, 0.03, peers=8), (10, 5, 3, 2, 1.5, 1.2)),
    "MLP-S, skewed": Problem(lambda seed: mlp_s(seed, 0.3, skew=0.9), (1.5, 1.3, 1.2, 1.1, 1.05)),
}


def played(
    task: Task, groups: Sequence[Group], until_s: float | None = None, **settings: Any
) -> tuple[World, list[ExchangeRecord]]:
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
    accuracy = next(life.result.metrics["accuracy"] for life in world.lives if life.result and life.result.metrics)
    return Classified(taken / mine[-1].time_s, accuracy)


def mixed(latency_s: float) -> list[Group]:
    """Two fast peers, and six that are slow and far."""
    far = parse_link(far_link(latency_s))
    return [Group(peers=2, link=parse_link(NEAR), step_s=1.0), Group(peers=6, link=far, step_s=4.0)]


def latency_of(task: Task) -> float:
    """Of the far peers, in seconds, such that an averaging takes `AVERAGING_S`."""
    guess_s = 10.0
    for _ in range(2):  # once more, as on a slower link a schedule of fewer messages is chosen
        _, rounds = played(task, mixed(guess_s), 1500.0, period="1", steps=10**9, link=NEAR, patience_s=1e4)
        slow = [record for record in rounds if record.peer == "7"][5:]
        guess_s *= AVERAGING_S / statistics.median(one.wait_s + one.transfer_s for one in slow)
    return guess_s


class System(NamedTuple):
    """`block`: of AdaComm, of the time there is."""

    period: str
    pace: str = "equal"
    drift: str = "left"
    block: float = 0.07

    def __str__(self) -> str:
        block = f", block {self.block:.0%}" if self.period == "adaptive" else ""
        return f"{self.period}, {self.pace} pace, drift {self.drift}{block}"


SYNCHRONOUS, ADAPTIVE = System("1"), System("adaptive")
HELD = System("32", "own", "corrected")
SYSTEMS = (
    SYNCHRONOUS, ADAPTIVE, System("adaptive", "own"), HELD, System("32", "equal", "corrected"),
    System("adaptive", block=0.15), System("16", "own"), System("16", "own", "corrected"),
    System("adaptive", "own", "corrected", block=0.15), System("auto"),
)  # fmt: skip
"""The first five are played when it has to be quick."""


def drifted(job: tuple[System, int], name: str, far_s: float, share: float) -> list[float]:
    """The loss over time."""
    system, seed = job
    until_s = share * (SYNCHRONOUS_UNTIL_S if system == SYNCHRONOUS else UNTIL_S)
    torch.set_num_threads(1)
    task = PROBLEMS[name].task(seed)
    _, rounds = played(
        task, mixed(far_s), until_s, period=system.period, pace=system.pace, drift=system.drift,
        seed=seed, steps=10**9, evaluate_every=1, period_block_s=system.block * share * UNTIL_S, patience_s=1e4,
    )  # fmt: skip
    return smoothed(at_first(task), rounds, until_s)


def on_digits(pool: Pool, quick: bool, seeds: Sequence[int]) -> tuple[list[dict[str, Any]], list[Claim]]:
    names = (WITHOUT, OWN) if quick else (WITHOUT, OWN, EQUAL)
    done = pool.map(classified, [(name, STEPS, seed) for name in names for seed in seeds], chunksize=1)
    rows: list[dict[str, Any]] = []
    print(f"\n{'digits, one of four peers is 5 times slower':<46}{'steps/s of the others':>22}{'accuracy':>10}")
    for number, name in enumerate(names):
        found = done[number * len(seeds) : (number + 1) * len(seeds)]
        speed, accuracy = (statistics.fmean(getattr(one, key) for one in found) for key in ("steps_per_s", "accuracy"))
        rows.append({"work": "digits", "system": name, "steps_per_s": speed, "accuracy": accuracy})
        print(f"{name:<46}{speed:>22.1f}{accuracy:>10.4f}")
    shares = [row["steps_per_s"] / rows[0]["steps_per_s"] for row in rows[1:]]
    lost = rows[0]["accuracy"] - rows[1]["accuracy"]
    ours = ", at equal pace ".join(f"{share:.3f}" for share in shares)
    return rows, [
        Claim("(ours)", "steps/s of the others at least 0.95 of those without the slow peer", ours, shares[0] >= 0.95),
        Claim("(ours)", "accuracy within 0.01 of a run without it", f"{lost:+.4f} lost", lost <= 0.01),
    ]


def unequal(
    name: str, pool: Pool, quick: bool, seeds: Sequence[int]
) -> tuple[list[dict[str, Any]], list[Claim], dict[str, Curve]]:
    """Eight peers on one of the problems."""
    task, levels = PROBLEMS[name]
    far_s, share, systems = latency_of(task(0)), QUICK if quick else 1.0, SYSTEMS[:5] if quick else SYSTEMS
    jobs = [(system, seed) for system in systems for seed in seeds]
    each = pool.map(partial(drifted, name=name, far_s=far_s, share=share), jobs, chunksize=1)
    done = dict(zip(jobs, each, strict=True))
    curves = {
        system: [statistics.fmean(at) for at in zip(*(done[system, seed] for seed in seeds), strict=True)]
        for system in systems
    }
    floors = {system: statistics.fmean(curve[-round(FLOOR * len(curve)) :]) for system, curve in curves.items()}
    floor = floors[SYNCHRONOUS]
    times = {system: [reached(curve, level * floor) for level in levels] for system, curve in curves.items()}
    title = f"{name}, eight peers, far ones {far_s:.2f} s away: s to"
    print(f"\n{title:<60}" + "".join(f"{level:>8g}" for level in levels) + f"{'floor':>8}, x synchronous")
    rows: list[dict[str, Any]] = []
    for system, to in times.items():
        over = floors[system] / floor
        print(f"{system!s:<60}" + "".join(f"{time_s:>8.0f}" for time_s in to) + f"{over:>8.2f}")
        reached_s = dict(zip(levels, to, strict=True))
        rows.append({"work": name, "system": str(system), "to_level_s": reached_s, "floor": over})
    ours, before = times[HELD], times[ADAPTIVE]
    sooner = [before_s / ours_s if ours_s < math.inf else 0.0 for ours_s, before_s in zip(ours, before, strict=True)]
    stays = (
        f"{floors[HELD] / floor:.2f} of the synchronous floor in the last quarter, not {floors[ADAPTIVE] / floor:.2f}"
    )
    goals = (
        (f"at {levels[-1]:g} of the synchronous floor 1.3 times sooner", f"{sooner[-1]:.2f} times", sooner[-1] >= 1.3),
        ("at no level later", f"{min(sooner):.2f} times sooner at least", min(sooner) >= 1),
        ("on no higher floor (only told)", stays, None),
    )
    claims = [
        Claim(
            "(ours, K1: a pace for each peer beats one period)",
            f"{name}, period {HELD}: {goal} than with AdaComm and equal steps",
            found,
            None if quick else held,
        )
        for goal, found, held in goals
    ]
    drawn: dict[str, Curve] = {
        str(system): [(GRID_S * (at + 1), loss) for at, loss in enumerate(curve)] for system, curve in curves.items()
    }
    return rows, claims, drawn


def main() -> int:
    known = parser(__doc__, "heterogeneous")
    known.add_argument("--only", choices=["digits", *PROBLEMS], help="this problem only")
    options = parsed_with_seeds(known, 3)
    chosen = [options.only] if options.only else ["digits", "LOG-H"] if options.quick else ["digits", *PROBLEMS]
    seeds, figure = options.seeds, None
    rows, claims = list[dict[str, Any]](), list[Claim]()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name in chosen:
            if name == "digits":
                more_rows, more_claims = on_digits(pool, options.quick, seeds)
            else:
                more_rows, more_claims, drawn = unequal(name, pool, options.quick, seeds)
                figure = figure or chart(f"{name}: loss over time", "virtual seconds", "loss", drawn)
            rows, claims = rows + more_rows, claims + more_claims
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
