"""A parameter server's workers against what the papers foretell: stale synchronous parallel (Ho et al., NIPS 2013),
staleness-aware SGD and n-softsync (Zhang et al., arXiv 1511.05950), backup workers (Chen et al., arXiv 1604.00981).

    python benchmarks/papers/staleness.py [--quick] [--seeds N] [--json FILE] [--figure FILE]

All of it is in virtual time. The library's consistency, store, gathering and algorithms decide; there is no network.

    a  asynchronous SGD with 32 workers at three learning rates: constant, staleness-aware, 1-softsync; uniform steps
    b  the same with exponential steps
    c  the clocks that 16 workers make in a time, for each bound, over those without staleness; exponential steps
    d  the time to 400 clocks with one worker that always takes three times as long: no bound helps
    e  the staleness of n-softsync with 32 workers: its mean, and how much of it is above 2 n
    f  backup workers: the time of a step with 16 + 2 workers over that with 16; log-normal steps
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import torch
from _common import Claim, Curve, Found, Row, chart, conclude, parsed_with_seeds, parser, studied
from _stale_workers import Problem, Scene, StepTime, exponential, log_normal, one_slow, played, uniform

BOUNDS = {"ssp:1": 1.62, "ssp:3": 2.24, "ssp:8": 2.78, "async": 3.38}
"""Consistency -> the clocks over those of bsp that PAPERS.md foretells."""
RATES = (0.3, 1.0, 2.0)
CURVES: dict[str, Curve] = {}


def bounds(seeds: Sequence[int], quick: bool) -> Found:
    until_s, rows, ratios = 100.0 if quick else 400.0, list[Row](), dict[str, float]()

    def rate(consistency: str, seed: int) -> tuple[float, bool]:
        out = played(Scene(workers=16, step_s=exponential, consistency=consistency, seed=seed), until_s=until_s)
        slack = None if consistency == "async" else int(consistency.partition(":")[2] or 0)
        return fmean(out.clocks) / until_s, slack is None or out.spread <= slack + 1

    base, kept = fmean(rate("bsp", seed)[0] for seed in seeds), True
    for consistency in BOUNDS:
        found = [rate(consistency, seed) for seed in seeds]
        ratios[consistency] = fmean(one for one, _ in found) / base
        kept = kept and all(within for _, within in found)
        rows.append({"work": "c: clocks over bsp", "system": consistency, "measured": ratios[consistency],
                     "foretold": BOUNDS[consistency]})  # fmt: skip
    ours = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    near = all(abs(ratio / BOUNDS[name] - 1) <= 0.1 for name, ratio in ratios.items())
    return rows, [
        Claim("staleness hides transient stragglers", "within 10 % of 1.62, 2.24, 2.78, 3.38", ours, near),
        Claim("the clocks differ by at most s", "never beyond s and the running step, at any event", f"{kept}", kept),
    ]


def one_slow_worker(quick: bool) -> Found:
    clocks, rows = 100 if quick else 400, list[Row]()
    for name, step_s in (("constant", one_slow), ("exponential", _slow_exponential)):
        for consistency in ("bsp", "ssp:1", "ssp:3", "ssp:8"):
            out = played(Scene(workers=16, step_s=step_s, consistency=consistency), until_clock=clocks)
            rows.append({"work": f"d: time to {clocks} clocks, one worker 3 times slower", "steps": name,
                         "system": consistency, "seconds": out.seconds})  # fmt: skip
    constant = [row["seconds"] for row in rows if row["steps"] == "constant"]
    ours = f"{min(constant):.0f} to {max(constant):.0f} t for every bound"
    gain = max(constant) / min(constant)
    return rows, [Claim("(not told) a persistent straggler", "no gain for any finite bound", ours, gain < 1.01)]


def _slow_exponential(chance: Any, worker: int) -> float:
    return one_slow(chance, worker) * exponential(chance, worker)


def softsync(quick: bool) -> Found:
    rows, near, above = list[Row](), True, 0.0
    steps: dict[str, StepTime] = {"uniform": uniform, "exponential": exponential}
    for name, step_s in steps.items():
        for n in (1, 4, 16, 32):
            scene = Scene(workers=32, step_s=step_s, algorithm=f"softsync:{n}")
            out = played(scene, until_s=60.0 if quick else 400.0)
            late = out.staleness[len(out.staleness) // 10 :]
            mean, beyond = fmean(late), sum(one > 2 * n for one in late) / len(late)
            rows.append({"work": "e: staleness of n-softsync, 32 workers", "steps": name, "system": f"n = {n}",
                         "mean": mean, "above_2n": beyond})  # fmt: skip
            if name == "uniform":
                near, above = near and abs(mean - n) <= max(0.1 * n, 0.5), max(above, beyond)
    told = ", ".join(f"{row['system']} {row['mean']:.2f}" for row in rows if row["steps"] == "uniform")
    ours = f"{told}; {above:.2%} above 2 n"
    return rows, [Claim("the mean staleness is n", "about n; at most 0.1 % above 2 n", ours, near and above <= 0.001)]


def losses(seeds: Sequence[int], quick: bool) -> Found:
    """The losses after equal numbers of gradients; each is the mean of the last quarter of its curve. Exponential step
    times stand beside: a few pushes of theirs are hardly stale, and 1 / tau weighs these so much that the mean weight
    is several times 1 / n."""
    until_s, rows = 40.0 if quick else 240.0, list[Row]()
    found: dict[tuple[str, str, float], float] = {}
    steps: dict[str, tuple[StepTime, Sequence[int]]] = {
        "uniform": (uniform, seeds),
        "exponential": (exponential, seeds[:1]),
    }
    systems = {"constant": "downpour", "aware": "staleness_aware", "1-softsync": "softsync:1"}
    for (kind, (step_s, of)), rate, (name, algorithm) in product(steps.items(), RATES, systems.items()):
        ends = []
        for seed in of:
            problem = Problem(seed, 32)
            scene = Scene(workers=32, step_s=step_s, algorithm=algorithm, function=f"sgd:{rate}", seed=seed)
            out = played(scene, problem.values, problem.gradient, until_s=until_s, judge=problem.judge)
            tail = [loss for _, loss in out.curve[-5:]]
            ends.append(fmean(tail) if all(map(math.isfinite, tail)) else math.inf)
            if seed == seeds[0] and kind == "uniform":
                CURVES[f"{name}, {rate:g}"] = [(at, min(loss, 4.0)) for at, loss in out.curve]
        found[kind, name, rate] = fmean(ends)
        work = f"{'a' if kind == 'uniform' else 'b'}: loss of asynchronous SGD, 32 workers"
        rows.append({"work": work, "steps": kind, "rate": rate, "system": name, "loss": found[kind, name, rate]})
    worst = max(found["uniform", "aware", rate] / found["uniform", "1-softsync", rate] for rate in RATES)
    lost = found["uniform", "constant", 1.0]
    ours = f"at most {worst - 1:+.1%} beside 1-softsync"
    return rows, [
        Claim("near synchronous accuracy", "staleness-aware at most 5 % above 1-softsync at every rate", ours,
              None if quick else worst <= 1.05),
        Claim("a constant rate diverges", "diverges or stalls at rate 1.0", f"loss {lost:.2f}",
              None if quick else lost > 1.5 * found["uniform", "1-softsync", 1.0]),
    ]  # fmt: skip


def backup(seeds: Sequence[int], quick: bool) -> Found:
    clocks, rows = 60 if quick else 400, list[Row]()

    def step_s(workers: int, algorithm: str, *, at_once: bool) -> float:
        def one(seed: int) -> float:
            scene = Scene(workers=workers, step_s=log_normal, algorithm=algorithm, at_once=at_once, seed=seed)
            out = played(scene, until_clock=clocks)
            return out.seconds / out.updates

        return fmean(map(one, seeds))

    base = step_s(16, "sync", at_once=False)
    ratios = {how: step_s(18, "backup:2", at_once=how == "at once") / base for how in ("at once", "when finished")}
    for how, ratio in ratios.items():
        rows.append({"work": "f: step time of 16 + 2 workers over 16", "system": how, "measured": ratio})
    goals = {"at once": 0.72, "when finished": 0.78}
    return rows, [
        Claim("backup workers shorten a step", f"at most {goals[how]}, late workers drop it {how}", f"{ratio:.3f}",
              ratio <= goals[how])
        for how, ratio in ratios.items()
    ]  # fmt: skip


def main() -> int:
    torch.set_num_threads(1)
    options = parsed_with_seeds(parser(__doc__, "staleness"), 3)
    seeds = [*options.seeds]
    studies = (partial(bounds, seeds), one_slow_worker, softsync, partial(losses, seeds), partial(backup, seeds))
    rows, claims = studied(studies, quick=options.quick)
    figure = chart("Asynchronous SGD, 32 workers", "virtual time, mean steps", "loss, at most 4", CURVES)
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
