"""How often to average: AdaComm (Wang and Joshi, arXiv 1810.08313), `auto`, and the schedules that contradict them.

    python benchmarks/papers/adacomm.py [--quick] [--json FILE] [--figure FILE] [--only PROBLEM] [--seeds N]

Four peers as they are in a real run, in virtual time: a local step takes 1 s, and the links make an averaging take 4 s.
Losses are those of the averaged model on held-out samples, the mean over five seeds, smoothed over 200 s. A level is
reached when the smoothed loss first falls below it. The best fixed period is chosen in hindsight for each level; where
it wins, the table says so. The learning rate is constant: then the quadratic rule (qsr) is a fixed period.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
from dataclasses import replace
from typing import Any

from _common import Claim, Curve, chart, conclude, parsed_with_seeds, parser
from _study import AVERAGING_S, FIXED, GRID_S, PROBLEMS, STEP_S, SYNCHRONOUS, Found, study

QUICK = 0.1
"""So much of the time; then nothing is judged."""


def table(name: str, found: Found) -> None:
    print(f"\n{name}: seconds to a loss, as a multiple of synchronous training's (over the best fixed period)")
    print(f"{'period':<18}" + "".join(f"{level:>13g}" for level in PROBLEMS[name].levels) + f"{'floor':>9}")
    for period, times in found.times.items():
        cells = []
        for time, least in zip(times, found.best(), strict=True):
            cells.append(f"{time:.0f} ({time / least:.2f})" if time < math.inf else "never")
        print(f"{period:<18}" + "".join(f"{cell:>13}" for cell in cells) + f"{found.floors[period]:>9.4f}")
    for period in ("adaptive", "auto"):
        changes = [f"{found.periods[period][0][1]}"]
        for (_, before), (at_s, after) in zip(found.periods[period], found.periods[period][1:], strict=False):
            if after != before:
                changes.append(f"{after} at {at_s:.0f} s")
        print(f"  {period}, first seed: {', '.join(changes)}")


def claims_of(name: str, found: Found) -> list[Claim]:
    problem = PROBLEMS[name]
    at = problem.levels.index(problem.at)
    share = found.times["adaptive"][at] / found.times[SYNCHRONOUS][at]
    paper = "AdaComm needs a third of the time of synchronous training (VGG-16: 1/3.3)"
    goal = f"{name}: at {problem.at:g} of the synchronous loss"
    if problem.goal is None:
        claims = [Claim(paper, goal, f"in {share:.3f} of its time")]
    else:
        goal += f" in at most {problem.goal:.3f} of its time"
        claims = [Claim(paper, goal, f"{share:.3f}", share <= problem.goal)]
    if name == "LOG-H, fast" and "64" in found.floors:
        paper = "AdaComm ends at the floor of synchronous training, a long fixed period far above it"
        over = {period: found.floors[period] / found.floors[SYNCHRONOUS] for period in ("adaptive", "auto", "64")}
        goal = f"{name}: floor over that of period 1: adaptive at most 1.1, 64 at least 2"
        ours = ", ".join(f"{period} {ratio:.2f}" for period, ratio in over.items())
        claims.append(Claim(paper, goal, ours, over["adaptive"] <= 1.1 and over["64"] >= 2))
    for period, most in (("adaptive", 1.3), ("auto", 1.15)):
        worst = found.worst(period)
        goal = f"{name}: {period} at every level within {most} of the best fixed period in hindsight"
        claims.append(Claim("(ours: no tuning, good at both ends)", goal, f"at worst {worst:.2f}", worst <= most))
    return claims


def rows_of(name: str, found: Found) -> list[dict[str, Any]]:
    problem = PROBLEMS[name]
    at, rows = problem.levels.index(problem.at), []
    for period, times in found.times.items():
        rows.append(
            {
                "work": f"{name}: to {problem.at:g} of the synchronous loss",
                "system": period,
                "median_s": times[at],
                "ratio": found.times[SYNCHRONOUS][at] / times[at],
                "goal": 1 / problem.goal if problem.goal and period == "adaptive" else None,
                "worst_over_best_fixed": found.worst(period),
                "floor": found.floors[period],
            }
        )
    return rows


def main() -> int:
    known = parser(__doc__, "adacomm")
    known.add_argument("--only", choices=list(PROBLEMS), help="this problem only")
    options = parsed_with_seeds(known, 5)
    chosen = [options.only] if options.only else ["LOG-H, fast"] if options.quick else list(PROBLEMS)
    seeds = options.seeds
    claims, rows, drawn = list[Claim](), list[dict[str, Any]](), dict[str, Curve]()
    print(f"an averaging takes {AVERAGING_S / STEP_S:g} local steps")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name in chosen:
            fixed, others = (("1", "8", "64"), ()) if options.quick else (FIXED, PROBLEMS[name].others)
            periods = (*fixed, "adaptive", "auto", *others)
            found = study(name, periods, seeds, pool, part=QUICK if options.quick else 1.0)
            table(name, found)
            claims += [replace(claim, held=None) if options.quick else claim for claim in claims_of(name, found)]
            rows += rows_of(name, found)
            for period in ("1", "8", "64", "adaptive", "auto"):
                if name == chosen[0]:
                    drawn[period] = [(GRID_S * (at + 1), loss) for at, loss in enumerate(found.curves[period])]
    return conclude(options, rows, claims, chart(f"{chosen[0]}: loss over time", "virtual seconds", "loss", drawn))


if __name__ == "__main__":
    sys.exit(main())
