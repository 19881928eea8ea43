"""Runs of peers in virtual time, one period beside the other, and when each reached which loss."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.pool import Pool

import torch
from _images import Data, load
from _tasks import fashion, log_h, mlp_s

from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Hung, World

PEERS, STEP_S, AVERAGING_S = 4, 1.0, 4.0
GRID_S, SMOOTH_S, FLOOR = 4.0, 200.0, 0.25
"""The floor is the mean over this last part of the run."""
SYNCHRONOUS = "1"
FIXED = (SYNCHRONOUS, "2", "4", "8", "16", "32", "64")


@dataclass(frozen=True)
class Problem:
    """`levels`: losses to reach, over that of synchronous training at its end, or over its floor where there is one.
    `at`: the level that is looked at: AdaComm has to be there in `goal` of the synchronous time, None: it is only told.
    `block_s`: of AdaComm, 7 to 10 % of the whole. `others`: the schedules that contradict it."""

    task: Callable[[int], Task]
    until_s: float
    block_s: float
    levels: tuple[float, ...]
    at: float
    goal: float | None
    others: tuple[str, ...]
    has_floor: bool = False


@lru_cache(maxsize=1)
def images() -> Data:
    return load()[1]


NEAR, FAR = (1.5, 1.3, 1.2, 1.1, 1.07, 1.05, 1.03, 1.01), (10, 5, 3, 2, 1.5, 1.2)
PROBLEMS: Mapping[str, Problem] = {
    "MLP-S": Problem(
        lambda seed: mlp_s(seed, 0.3), 8000, 800, NEAR, 1.05, 1 / 3, ("post_local:16:400", "qsr:4:1.2", "even:8")
    ),
    "MLP-S, skewed": Problem(lambda seed: mlp_s(seed, 0.3, skew=0.9), 8000, 800, NEAR, 1.05, None, ("even:8",)),
    "LOG-H": Problem(
        lambda seed: log_h(seed, 0.02),
        *(6000, 400, FAR, 1.5, 0.4, ("post_local:16:400", "qsr:4:0.08", "even:8")),
        has_floor=True,
    ),
    "LOG-H, fast": Problem(
        lambda seed: log_h(seed, 0.05), 6000, 400, FAR, 1.2, None, ("post_local:16:400", "even:8"), has_floor=True
    ),
    "Fashion-MNIST": Problem(
        lambda seed: fashion(seed, 0.1, images()),
        *(6000, 500, NEAR, 1.05, 1 / 2.8, ("post_local:16:400", "qsr:4:0.4", "even:8")),
    ),
}


def run(task: Task, period: str, *, seed: int, link: str, until_s: float, block_s: float) -> list[ExchangeRecord]:
    """The records of all rounds after which the model was judged."""
    settings = Settings(
        peers=PEERS, period=period, period_block_s=block_s, period_initial=16, steps=10**9, seed=seed, link=link,
        step_time=f"{STEP_S:g}s", patience_s=1000.0, evaluate_every=4 if period in ("1", "2") else 1,
    )  # fmt: skip
    _, rounds = play(task, Scenario.plain(settings), until_s)
    return [record for record in rounds if "accuracy" in record.metrics]


def play(task: Task, scenario: Scenario, until_s: float | None = None) -> tuple[World, list[ExchangeRecord]]:
    """The world when its time is over, or with none when it has ended by itself, and the records of all rounds."""
    rounds: list[ExchangeRecord] = []

    def record(what: Record) -> None:
        if isinstance(what, ExchangeRecord):
            rounds.append(what)

    world = World(task, scenario, record)
    world.log.judged = False
    try:
        run_virtual(world.run(within_s=until_s), seed=scenario.settings.seed)
    except Hung:  # its time is over
        return world, rounds
    if until_s is not None:
        raise AssertionError("it ended by itself")
    return world, rounds


@lru_cache
def link(name: str) -> str:
    """One on which an averaging of this problem's model takes four times as long as a local step: all of it latency."""
    latency_s = 1.0
    for _ in range(3):  # on another link another schedule may be chosen
        begun = run(PROBLEMS[name].task(0), "4", seed=0, link=far_link(latency_s), until_s=400, block_s=1e6)
        took_s = statistics.median(one.wait_s + one.transfer_s for one in begun[len(begun) // 2 :])
        latency_s *= AVERAGING_S / took_s
    return far_link(latency_s)


def far_link(latency_s: float) -> str:
    """All latency."""
    return f"1tbit,{round(1e6 * latency_s)}us"


def at_first(task: Task) -> float:
    """The loss of the model that all begin with."""
    assert task.evaluate is not None
    return float(task.evaluate(task.model()))


def smoothed(begins: float, rounds: Sequence[ExchangeRecord], until_s: float) -> list[float]:
    """On a grid of `GRID_S`, from the loss at the beginning and between two rounds the line between them, and then the
    mean of the last `SMOOTH_S`."""
    judged = [one for one in rounds if "accuracy" in one.metrics]
    times, losses = [0.0, *(one.time_s for one in judged)], [begins, *(one.metrics["accuracy"] for one in judged)]
    curve, at, width = [], 0, round(SMOOTH_S / GRID_S)
    for number in range(1, round(until_s / GRID_S)):
        now = number * GRID_S
        while at + 1 < len(times) and times[at + 1] <= now:
            at += 1
        if at + 1 < len(times):
            share = (now - times[at]) / (times[at + 1] - times[at])
            curve.append(losses[at] + share * (losses[at + 1] - losses[at]))
        else:
            curve.append(losses[at])
    return [statistics.fmean(curve[max(0, end - width) : end]) for end in range(1, len(curve) + 1)]


def one(job: tuple[str, str, int, float]) -> tuple[list[float], list[tuple[float, int]]]:
    """The loss over time of one run, and the periods it went through with when they ended."""
    name, period, seed, until_s = job
    torch.set_num_threads(1)
    problem = PROBLEMS[name]
    task = problem.task(seed)
    rounds = run(task, period, seed=seed, link=link(name), until_s=until_s, block_s=problem.block_s)
    periods = [(record.time_s, int(record.details["period"])) for record in rounds]
    return smoothed(at_first(task), rounds, until_s), periods


def reached(curve: Sequence[float], level: float) -> float:
    """Seconds; infinite: never."""
    return next((GRID_S * (number + 1) for number, loss in enumerate(curve) if loss <= level), math.inf)


@dataclass(frozen=True)
class Found:
    """Of one problem, by period: the mean curves, the seconds to each level, the floors, and the periods it had."""

    curves: Mapping[str, list[float]]
    times: Mapping[str, list[float]]
    floors: Mapping[str, float]
    periods: Mapping[str, list[tuple[float, int]]]

    def best(self) -> list[float]:
        """Of the fixed periods, the best for each level, in hindsight."""
        fixed = [times for period, times in self.times.items() if period in FIXED]
        return [min(at) for at in zip(*fixed, strict=True)]

    def worst(self, period: str) -> float:
        """Of its times over the best, the greatest."""
        pairs = zip(self.times[period], self.best(), strict=True)
        return max(mine / least for mine, least in pairs if least < math.inf)


def study(name: str, periods: Sequence[str], seeds: Sequence[int], pool: Pool, part: float = 1.0) -> Found:
    """`part`: of the problem's time."""
    until_s = part * PROBLEMS[name].until_s
    jobs = [(name, period, seed, until_s) for period in periods for seed in seeds]
    done = dict(zip(jobs, pool.map(one, jobs, chunksize=1), strict=True))
    curves = {}
    for period in periods:
        each = [done[name, period, seed, until_s][0] for seed in seeds]
        curves[period] = [statistics.fmean(losses) for losses in zip(*each, strict=True)]
    last, problem = round(FLOOR * len(curves[SYNCHRONOUS])), PROBLEMS[name]
    floors = {period: statistics.fmean(curve[-last:]) for period, curve in curves.items()}
    final = floors[SYNCHRONOUS] if problem.has_floor else curves[SYNCHRONOUS][-1]
    times = {period: [reached(curve, level * final) for level in problem.levels] for period, curve in curves.items()}
    return Found(curves, times, floors, {period: done[name, period, seeds[0], until_s][1] for period in periods})
