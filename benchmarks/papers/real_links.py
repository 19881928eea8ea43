"""AdaComm (Wang and Joshi, arXiv 1810.08313) on real processes in real time, beside what the simulation foretells.

    python benchmarks/papers/real_links.py [--quick] [--json FILE] [--figure FILE] [--seed N] [--peers N] [--until N]

Four peer processes of `samovar train` on MLP-S, held by `--link` to 10 Mbit/s and to a latency with which an averaging
takes four times as long as a local step, of 40 ms. All that the simulation is told of this machine is how long a local
step takes, by the records of a short real run. From that it says which latency this is, and when each period will be
at the level: 1.05 of the loss that synchronous training ends with, after the time of 4,000 local steps. Then the same
settings are run for real: on an idle machine. Time counts from when all peers have met; losses are those of the
averaged model on held-out samples, smoothed over the time of 200 local steps, in both worlds.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import _paced
import torch
from _common import Claim, chart, conclude, parser
from _study import AVERAGING_S, GRID_S, PROBLEMS, STEP_S, SYNCHRONOUS, at_first, play, reached, smoothed
from _tasks import mlp_s

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings
from samovar.sims.scenarios.scenario import Scenario

PROBLEM, TASK = PROBLEMS["MLP-S"], Path(_paced.__file__)
FIXED, ADAPTIVE, AUTO = "16", "adaptive", "auto"
ALPHA, RATE = AVERAGING_S / STEP_S, "10mbit"
UNTIL, QUICK = 4000, 400
"""The time of the longest run, in local steps."""
SOONER, WITHIN = 2.5, 0.15
LATE, MORE = 1.2, 20
"""A real run takes the local steps that are foretold for so many times the time, and so many grid points more."""
PILOT, WARM = 80, 3
"""Local steps of the short run; rounds that do not count for an averaging, as links still learn their pace."""


@dataclass(frozen=True)
class Told:
    """A run by its records: the loss over time, on the grid of `_study`, in the time of local steps that take
    `_paced.STEP_S`; the local steps at each of its points; and seconds of a local step, and of an averaging."""

    curve: list[float]
    steps: list[int]
    step_s: float
    averaging_s: float

    def steps_for(self, level: float) -> int:
        """Local steps with which a run is at the level, even if it is `LATE`."""
        at = next((number for number, loss in enumerate(self.curve) if loss <= level), len(self.curve))
        return self.steps[min(round(LATE * at) + MORE, len(self.steps) - 1)]


def told(begins: float, rounds: Sequence[ExchangeRecord]) -> Told:
    judged = [replace(one, time_s=one.time_s / _paced.STEP_S) for one in rounds if "accuracy" in one.metrics]
    until = judged[-1].time_s
    at = [GRID_S * number for number in range(1, round(until / GRID_S))]
    return Told(
        smoothed(begins, judged, until),
        [max((one.step for one in judged if one.time_s <= time), default=0) for time in at],
        sum(one.compute_s for one in rounds) / sum(one.steps_per_s * one.compute_s for one in rounds),
        statistics.median(one.wait_s + one.transfer_s for one in rounds[WARM * len({one.peer for one in rounds}) :]),
    )


def usual(peers: int, seed: int, until: float) -> Settings:
    """Of a run in either world; a block of AdaComm is as long a part of the time as in adacomm.py."""
    return Settings(
        peers=peers, period_block_s=until * PROBLEM.block_s / PROBLEM.until_s * _paced.STEP_S, period_initial=16,
        steps=10**9, seed=seed, patience_s=30.0, checkpoint_every_s=1e6, device="cpu", threads=1,
        listen="tcp://127.0.0.1:0", report=False,
    )  # fmt: skip


def with_period(settings: Settings, period: str) -> Settings:
    return settings.changed(period=period, evaluate_every=4 if period == SYNCHRONOUS else 1)


def real(settings: Settings) -> Told:
    """As a person would run it."""
    with tempfile.TemporaryDirectory() as folder:
        file, run = Path(folder, "settings.toml"), Path(folder, "run")
        given = {name: value for name, value in settings.plain().items() if value is not None}
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()), encoding="utf-8")
        command = [sys.executable, "-m", "samovar", "train", TASK, "--config", file, "--run", run, "--quiet"]
        environment = os.environ | {_paced.SEED_VARIABLE: str(settings.seed)}
        subprocess.run([str(word) for word in command], check=True, env=environment)
        return told(at_first(mlp_s(settings.seed, _paced.RATE)), read_run(run).exchanges)


def foretold(settings: Settings, step_s: float, until: float) -> Told:
    """The same in virtual time, with local steps of `step_s` seconds and without the waiting in them."""
    torch.set_num_threads(1)
    as_measured = settings.changed(step_time=f"{round(1e6 * step_s)}us")
    task = mlp_s(settings.seed, _paced.RATE)
    return told(at_first(task), play(task, Scenario.plain(as_measured), until * _paced.STEP_S)[1])


def link_for(settings: Settings, step_s: float) -> str:
    """With the latency that makes an averaging as long as it is to be."""
    latency_s = step_s
    for _ in range(3):  # more than once, as on a slower link a schedule of fewer messages is chosen
        begun = foretold(settings.changed(period="4", link=link_of(latency_s), evaluate_every=1), step_s, 200)
        latency_s *= ALPHA * step_s / begun.averaging_s
    return link_of(latency_s)


def link_of(latency_s: float) -> str:
    return f"{RATE},{round(1e6 * latency_s)}us"


def seconds_to(level: float, runs: Mapping[str, Told]) -> dict[str, float]:
    return {period: _paced.STEP_S * reached(one.curve, level) for period, one in runs.items()}


def table(measured: Mapping[str, Told], predicted: Mapping[str, Told], level: float) -> list[dict[str, Any]]:
    """Printed, and as rows."""
    rows, real_s, told_s = [], seconds_to(level, measured), seconds_to(level, predicted)
    work = f"to {PROBLEM.at:g} of the synchronous loss, {level:.4f}"
    print(
        f"{work:<46}{'real':>9}{'foretold':>10}{'error':>8}{'sooner':>8}{'step':>10}{'averaging':>11}{'foretold':>10}"
    )
    for period, mine in measured.items():
        error, sooner = told_s[period] / real_s[period] - 1, real_s[SYNCHRONOUS] / real_s[period]
        ours, theirs = mine.averaging_s / mine.step_s, predicted[period].averaging_s / predicted[period].step_s
        print(
            f"{f'period {period}':<46}{real_s[period]:>7.1f} s{told_s[period]:>8.1f} s{error:>+8.1%}{sooner:>8.2f}"
            f"{1e3 * mine.step_s:>7.2f} ms{ours:>5.2f} steps{theirs:>4.2f} steps"
        )
        rows.append(
            {
                "work": work, "system": period, "median_s": real_s[period], "foretold_s": told_s[period],
                "error": error, "ratio": sooner, "goal": SOONER if period == ADAPTIVE else None,
                "step_s": mine.step_s, "foretold_step_s": predicted[period].step_s, "averaging_s": mine.averaging_s,
                "foretold_averaging_s": predicted[period].averaging_s,
            }
        )  # fmt: skip
    return rows


def claims_of(rows: Sequence[Mapping[str, Any]], quick: bool) -> list[Claim]:
    ratio = next(row["ratio"] for row in rows if row["system"] == ADAPTIVE)
    worst = max(rows, key=lambda row: abs(row["error"]))
    far = math.isnan(worst["error"]) or abs(worst["error"]) > WITHIN
    found = [
        Claim(
            "AdaComm needs a third of the time of synchronous training (VGG-16: 1/3.3)",
            f"{SOONER} times less wall time than --period 1", f"{ratio:.2f} times less", ratio >= SOONER,
        ),
        Claim(
            "(ours: the simulation foretells real runs)", f"every time within {WITHIN:.0%} of the real one",
            f"at worst {worst['error']:+.1%}, period {worst['system']}", not far,
        ),
    ]  # fmt: skip
    return [replace(claim, held=None) for claim in found] if quick else found


def main() -> int:
    known = parser(__doc__, "real_links")
    known.add_argument("--seed", type=int, default=0, help="of the model and the data [default: %(default)s]")
    known.add_argument("--peers", type=int, default=4, help="[default: %(default)s]")
    known.add_argument("--until", type=int, help="time of the longest run, in local steps [default: 4000, --quick 400]")
    options = known.parse_args()
    until = options.until or (QUICK if options.quick else UNTIL)
    periods = (SYNCHRONOUS, ADAPTIVE) if options.quick else (SYNCHRONOUS, FIXED, ADAPTIVE, AUTO)
    settings = usual(options.peers, options.seed, until)

    step_s = real(settings.changed(period="8", steps=PILOT, link=link_of(_paced.STEP_S))).step_s
    link = link_for(settings, step_s)
    print(f"a local step takes {1e3 * step_s:.2f} ms; --link {link}: an averaging takes {ALPHA:g} times as long")
    wished = {period: with_period(settings, period).changed(link=link) for period in periods}
    predicted = {period: foretold(one, step_s, until) for period, one in wished.items()}
    level = PROBLEM.at * predicted[SYNCHRONOUS].curve[-1]
    measured = {}
    for period, one in wished.items():
        measured[period] = real(one.changed(steps=predicted[period].steps_for(level)))
    rows = table(measured, predicted, level)
    drawn, beside = (
        {
            period: [(_paced.STEP_S * GRID_S * (at + 1), loss) for at, loss in enumerate(run.curve)]
            for period, run in runs
        }
        for runs in (measured.items(), predicted.items())
    )
    figure = chart("MLP-S: loss over time; dashed: foretold", "seconds", "loss", drawn, dashed=beside)
    return conclude(options, rows, claims_of(rows, options.quick), figure)


if __name__ == "__main__":
    sys.exit(main())
