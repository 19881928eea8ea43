"""Averages within sites between those of all: hierarchical local SGD (Lin et al., arXiv 1808.07217) on a slow trunk.

    python benchmarks/papers/hierarchical.py [--quick] [--json FILE] [--figure FILE] [--only PROBLEM] [--seeds N]

Two sites of two peers, in virtual time: a local step takes 1 s, and the line between the sites makes an average of all
take 10 s, while one within a site takes a quarter of a second. In other units: a step of 10 ms, 100 Mbit/s and 0.5 ms
within a site, 50 ms between. ``4 at a site, 16`` averages every 4 local steps within the sites, every 16 all.
Losses are those of the model that all agreed on, on held-out samples, smoothed over 200 s, the mean of the seeds. Goals
are losses over what synchronous training has come to at the end of its time.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import Pool
from typing import Any

import torch
from _common import Claim, Curve, chart, conclude, parsed_with_seeds, parser
from _study import FLOOR, GRID_S, PROBLEMS, SYNCHRONOUS, at_first, play, reached, smoothed

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import Task
from samovar.protocols.link_spec import LinkSpec
from samovar.sims.scenarios.scenario import Group, Scenario

STEP_S, AVERAGING_S, NEAR = 1.0, 10.0, "1mbit,50ms"
LONGER = (1 + AVERAGING_S) / 5
"""Synchronous training has so much more time than all others: as many steps as where an average takes 4 s."""
QUICK = 0.04
LEVELS = {"MLP-S": (1.2, 1.05), "MLP-S, skewed": (1.2, 1.05), "LOG-H": (2.0, 1.5)}
ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class System:
    period: str
    site_period: int | None = None

    @property
    def name(self) -> str:
        return self.period if self.site_period is None else f"{self.site_period} at a site, {self.period}"


FLAT = [System(period) for period in (SYNCHRONOUS, "4", "16", "64", ADAPTIVE, "post_local:16:400")]
SITED = [System(*pair) for pair in (("16", 1), ("16", 4), ("64", 1), ("64", 4), (ADAPTIVE, 4))]


def run(name: str, task: Task, system: System, seed: int, latency_s: float, until_s: float) -> list[ExchangeRecord]:
    problem = PROBLEMS[name]
    settings = Settings(
        peers=4, site="east;east;west;west", site_period=system.site_period, period=system.period, period_initial=16,
        period_block_s=problem.block_s / problem.until_s * until_s, steps=10**9, seed=seed, patience_s=1000.0,
        evaluate_every=4 if system.period == SYNCHRONOUS else 1,
    )  # fmt: skip
    groups = tuple(Group(peers=2, site=site, link=parse_link(NEAR), step_s=STEP_S) for site in ("east", "west"))
    trunk = LinkSpec(bandwidth_Bps=1e12, latency_s=latency_s)
    scenario = Scenario(settings=settings, groups=groups, trunks=(("east", "west", trunk),))
    return [record for record in play(task, scenario, until_s)[1] if record.peer == "0"]


def latency_of(name: str) -> float:
    """Of the line between the sites, such that an average of all takes `AVERAGING_S`."""
    guess_s = 2.0
    for _ in range(2):  # once more, as on a slower line another schedule is chosen
        rounds = run(name, PROBLEMS[name].task(0), System("4"), 0, guess_s, 200.0)
        guess_s *= AVERAGING_S / statistics.median(one.wait_s + one.transfer_s for one in rounds[5:])
    return guess_s


def curve_of(job: tuple[System, int], name: str, latency_s: float, until_s: float) -> list[float]:
    system, seed = job
    torch.set_num_threads(1)
    until_s *= LONGER if system.period == SYNCHRONOUS else 1.0
    task = PROBLEMS[name].task(seed)
    rounds = run(name, task, system, seed, latency_s, until_s)
    return smoothed(at_first(task), rounds, until_s)


@dataclass(frozen=True)
class Found:
    """Of one problem, by system: the mean curves, the seconds to each level, and the floors."""

    curves: Mapping[str, list[float]]
    times: Mapping[str, list[float]]
    floors: Mapping[str, float]


def study(name: str, systems: Sequence[System], seeds: Sequence[int], pool: Pool, share: float) -> Found:
    until_s, latency_s = share * PROBLEMS[name].until_s, latency_of(name)
    jobs = [(system, seed) for system in systems for seed in seeds]
    each = pool.map(partial(curve_of, name=name, latency_s=latency_s, until_s=until_s), jobs, chunksize=1)
    done, curves = dict(zip(jobs, each, strict=True)), {}
    for system in systems:
        together = zip(*(done[system, seed] for seed in seeds), strict=True)
        curves[system.name] = [statistics.fmean(losses) for losses in together]
    floors = {kind: statistics.fmean(curve[-round(FLOOR * len(curve)) :]) for kind, curve in curves.items()}
    final = floors[SYNCHRONOUS] if PROBLEMS[name].has_floor else curves[SYNCHRONOUS][-1]
    times = {kind: [reached(curve, level * final) for level in LEVELS[name]] for kind, curve in curves.items()}
    print(f"{name}: {latency_s:.2f} s between the sites")
    return Found(curves, times, floors)


def table(found: Mapping[str, Found]) -> None:
    print("\nseconds to a loss (as a multiple of flat AdaComm's); floor: over that of synchronous training")
    print(f"{'':<22}" + "".join(f"{name:<41}" for name in found))
    heads = ("".join(f"{level:>14g}" for level in LEVELS[name]) + f"{'floor':>13}" for name in found)
    print(f"{'period':<22}" + "".join(heads))
    for system in next(iter(found.values())).times:
        line = f"{system:<22}"
        for one in found.values():
            for time, flat in zip(one.times[system], one.times[ADAPTIVE], strict=True):
                line += f"{f'{time:.0f} ({time / flat:.2f})' if time < math.inf else 'never':>14}"
            line += f"{one.floors[system] / one.floors[SYNCHRONOUS]:>13.3f}"
        print(line)


def claims_of(name: str, found: Found) -> list[Claim]:
    flat, sited = found.times[ADAPTIVE][-1], [system.name for system in SITED if system.name in found.times]
    paper = "hierarchical local SGD: rare averages over slow lines, made good for by those on fast ones"
    goal = f"{name}: seconds to {LEVELS[name][-1]:g}, over those of flat AdaComm (nothing is judged)"
    return [Claim(paper, goal, ", ".join(f"{system}: {found.times[system][-1] / flat:.2f}" for system in sited))]


def main() -> int:
    known = parser(__doc__, "hierarchical")
    known.add_argument("--only", choices=list(LEVELS), help="this problem only")
    options = parsed_with_seeds(known, 2)
    names = [options.only] if options.only else ["LOG-H"] if options.quick else list(LEVELS)
    systems = [*FLAT, *SITED]
    if options.quick:
        systems = [System(SYNCHRONOUS), System("16"), System(ADAPTIVE), System("16", 4), System("64", 1)]
    seeds, share = options.seeds, QUICK if options.quick else 1.0
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = {name: study(name, systems, seeds, pool, share) for name in names}
    table(found)
    rows: list[dict[str, Any]] = [
        {"work": name, "system": system, "to_level_s": times, "floor": one.floors[system]}
        for name, one in found.items()
        for system, times in one.times.items()
    ]
    first, drawn = names[0], dict[str, Curve]()
    for system, curve in found[first].curves.items():
        drawn[system] = [(GRID_S * (at + 1), loss) for at, loss in enumerate(curve)]
    figure = chart(f"{first}: loss over time, two sites", "virtual seconds", "loss", drawn)
    return conclude(options, rows, [claim for name in names for claim in claims_of(name, found[name])], figure)


if __name__ == "__main__":
    sys.exit(main())
