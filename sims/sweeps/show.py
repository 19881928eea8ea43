"""The output of ``samovar simulate --sweep``: progress, failures, and for each failure the command that reproduces
it."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ...peers.cli.notebook import Place, in_notebook
from ...peers.records.units import count_text, seconds_text
from ..scenarios.text import scenario_text
from .minimise import minimise
from .sweep import SAME_AGAIN, sweep, unmet
from .verdict import Verdict

TOLD = 3
"""The number of failures that are printed in full. For each further one, or each with --quiet, a line is printed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose scenario broke a promise. `verdict`: on that scenario, or on the smallest one if there is a
    `minimal`. `protocol`: the conversation of the whole sweep; None: all registered ones. `minimal`: the file with the
    smallest scenario found that breaks the same promise; None: no scenario was minimised for this failure."""

    seed: int
    verdict: Verdict
    protocol: str | None = None
    minimal: Path | None = None

    @property
    def replay(self) -> str:
        """The command that reproduces the failure."""
        if self.minimal is not None:
            return f"samovar simulate --scenario {self.minimal}"
        of_one = "" if self.protocol is None else f" --protocol {shlex.quote(self.protocol)}"
        return f"samovar simulate --sweep 1 --seed {self.seed}{of_one}"

    def lines(self) -> list[str]:
        """The failure in full: the promise, the scenario, the last events, and the command that reproduces it."""
        scenario = scenario_text(self.verdict.scenario).rstrip()
        return [
            f"seed {self.seed} broke a promise: {self.verdict.broken}",
            "the scenario:" if self.minimal is None else f"the smallest scenario that does ({self.minimal}):",
            *(f"    {line}".rstrip() for line in scenario.split("\n")),
            "the last events:",
            *(f"    {line}" for line in self.verdict.last),
            f"see it again with: {self.replay}",
            "",
        ]

    def row(self) -> dict[str, object]:
        """The failure as data for JSON."""
        return {
            "seed": self.seed,
            "broken": self.verdict.broken,
            "scenario": scenario_text(self.verdict.scenario),
            "last": list(self.verdict.last),
            "minimal": None if self.minimal is None else str(self.minimal),
            "replay": self.replay,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep:
    """The outcome of a sweep over `seeds` seeds from `first_seed` on, in `seconds` of real time. `failures`: the seeds
    that broke a promise. `reached`: name of a place, which is a rare situation in a run that the code counts -> how
    often it was reached in all seeds. `never_met`: places that a sweep of this size should have reached and did not."""

    first_seed: int
    seeds: int
    seconds: float
    failures: tuple[Failure, ...]
    never_met: tuple[str, ...]
    reached: Mapping[str, int]

    @property
    def held(self) -> bool:
        """Whether every promise held, and all places were reached that had to be."""
        return not self.failures and not self.never_met

    def row(self) -> dict[str, object]:
        """The outcome as data for JSON."""
        return {
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "seconds": self.seconds,
            "never_met": [*self.never_met],
            "broken": [failure.row() for failure in self.failures],
            "reached": {**self.reached},
        }

    def text(self) -> str:
        """The outcome in one line."""
        how = f"{len(self.failures)} broke a promise" if self.failures else "every promise held"
        return f"{count_text(self.seeds, 'seed')}, {how}; {seconds_text(self.seconds)}"

    def __repr__(self) -> str:
        return f"<samovar.Sweep: {self.text()}>"


class _Told:
    """The display of a sweep's progress: a bar on a terminal, in a notebook a line that is replaced, elsewhere a line
    for each tenth of the seeds; nothing when `quiet`."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, quiet=quiet)
        self._place = Place() if in_notebook() and not quiet else None
        self._live = self._console.is_terminal and not quiet and self._place is None
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self._console, disable=not self._live
        )
        self._count, self._task = count, self._bar.add_task("seeds", total=count)

    def __enter__(self) -> _Told:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def judged(self) -> None:
        """Count one more verdict on the bar. May be called from any thread."""
        self._bar.advance(self._task)

    def so_far(self, done: int, broken: int) -> None:
        self._bar.update(self._task, description=f"seeds, {broken} broken" if broken else "seeds")
        if self._place is not None:
            line = f"{done} of {self._count} seeds, {broken} broken"
            self._place.show(Text(line), line)
        elif not self._live and done * 10 // self._count != (done - 1) * 10 // self._count and done < self._count:
            self.say(f"{done} of {self._count} seeds, {broken} broken")

    def say(self, line: str) -> None:
        self._bar.console.print(line)


def swept(
    first_seed: int,
    count: int,
    protocol: str | None = None,
    *,
    smallest: bool,
    quiet: bool,
    workers: int | None = None,
) -> Sweep:
    """Judge `count` seeds from `first_seed` on, and show the progress, unless `quiet`. `protocol`: the conversation of
    all seeds; None: they are divided among the registered ones. `smallest`: for the first failure of each promise, but
    for the promise that a seed repeats its run, write a minimised scenario to ``minimal-SEED.toml`` in the working
    folder. `workers`: number of processes; None: one for each core, at most `count`; 1: this process alone."""
    began, reached, verdicts = time.monotonic(), Counter[str](), Counter[str]()
    failures: list[Failure] = []
    seeds, workers = range(first_seed, first_seed + count), workers or min(count, os.cpu_count() or 1)
    with _Told(count, quiet=quiet) as told:
        judged = sweep(seeds, protocol=protocol, workers=workers, progress=told.judged)
        for seed, verdict in zip(seeds, judged, strict=True):
            reached.update(verdict.reached)
            verdicts[verdict.scenario.settings.protocol.text] += 1
            if verdict.broken is not None:
                failure = Failure(seed, verdict, protocol)
                known = {other.verdict.promise for other in failures}
                if smallest and verdict.promise not in {*known, SAME_AGAIN}:
                    told.say(f"seed {seed} broke a promise: {verdict.broken}; looking for the smallest that does")
                    failure = _minimised(failure)
                failures.append(failure)
            told.so_far(seed - first_seed + 1, len(failures))
    return Sweep(
        first_seed=first_seed,
        seeds=count,
        seconds=time.monotonic() - began,
        failures=tuple(failures),
        never_met=tuple(unmet(verdicts, reached)),
        reached=reached,
    )


def show_sweep(
    first_seed: int, count: int, protocol: str | None = None, *, smallest: bool, as_json: bool, quiet: bool
) -> int:
    """Make a sweep (`swept`) and print its outcome: the failures and a line on the whole, or with `as_json` one line of
    JSON. `quiet`: show no progress, and each failure as one line. Returns the exit code: 1 if a promise was broken or a
    required place was not reached, else 0."""
    outcome = swept(first_seed, count, protocol, smallest=smallest, quiet=quiet or as_json)
    if as_json:
        click.echo(json.dumps(outcome.row()))
    else:
        click.echo("\n".join(_summary(outcome, quiet=quiet)))
    return 0 if outcome.held else 1


def _minimised(failure: Failure) -> Failure:
    file = Path(f"minimal-{failure.seed}.toml")
    verdict = minimise(failure.verdict)
    file.write_text(scenario_text(verdict.scenario), encoding="utf-8")
    return replace(failure, verdict=verdict, minimal=file)


def _summary(outcome: Sweep, *, quiet: bool) -> list[str]:
    failures = outcome.failures
    in_full = sorted(failures, key=lambda failure: (failure.minimal is None, failure.seed))[:TOLD]
    lines = [line for failure in in_full for line in failure.lines()] if not quiet else []
    lines += [
        f"seed {failure.seed} broke a promise: {failure.verdict.broken}; see it with: {failure.replay}"
        for failure in failures
        if quiet or failure not in in_full
    ]
    lines += [f"never met, so that nothing is known about it: {what}" for what in outcome.never_met]
    return [*lines, outcome.text()]
