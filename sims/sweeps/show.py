"""The output of ``samovar simulate --sweep``: progress, failures, and for each failure the command that reproduces
it."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...peers.records.units import seconds_text
from ..scenarios.text import scenario_text
from .minimise import minimise
from .sweep import SAME_AGAIN, sweep, unmet
from .verdict import Verdict

TOLD = 3
"""The number of failures that are printed in full; of the others the seed and the promise are printed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose scenario broke a promise. `protocol`: the conversation of the whole sweep; None: all registered
    ones. `minimal`: the file with the smallest scenario found that breaks the same promise; None: it was not
    minimised."""

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


class _Told:
    """The display of a sweep's progress: a bar on a terminal, elsewhere a line for each tenth of the seeds; nothing
    when `quiet`."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, quiet=quiet)
        self._live = self._console.is_terminal and not quiet
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
        if not self._live and done * 10 // self._count != (done - 1) * 10 // self._count and done < self._count:
            self.say(f"{done} of {self._count} seeds, {broken} broken")

    def say(self, line: str) -> None:
        self._bar.console.print(line)


def show_sweep(
    first_seed: int, count: int, protocol: str | None = None, *, smallest: bool, as_json: bool, quiet: bool
) -> int:
    """Judge `count` seeds from `first_seed` on, and print the failures. Returns the exit code: 1 if a promise was
    broken or a required place was not reached, else 0. `protocol`: the conversation of all seeds; None: they are
    divided among the registered ones. `smallest`: write minimised scenarios of the failures to files
    ``minimal-SEED.toml``."""
    began, reached, verdicts = time.monotonic(), Counter[str](), Counter[str]()
    failures: list[Failure] = []
    seeds, workers = range(first_seed, first_seed + count), min(count, os.cpu_count() or 1)
    with _Told(count, quiet=quiet or as_json) as told:
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
    never, took_s = unmet(verdicts, reached), time.monotonic() - began
    if as_json:
        row = {"first_seed": first_seed, "seeds": count, "seconds": took_s, "never_met": never}
        click.echo(json.dumps(row | {"broken": [failure.row() for failure in failures], "reached": dict(reached)}))
    else:
        click.echo("\n".join(_summary(failures, never, count, took_s, quiet=quiet)))
    return 1 if failures or never else 0


def _minimised(failure: Failure) -> Failure:
    file = Path(f"minimal-{failure.seed}.toml")
    verdict = minimise(failure.verdict)
    file.write_text(scenario_text(verdict.scenario), encoding="utf-8")
    return replace(failure, verdict=verdict, minimal=file)


def _summary(failures: list[Failure], never: list[str], count: int, took_s: float, *, quiet: bool) -> list[str]:
    in_full = sorted(failures, key=lambda failure: (failure.minimal is None, failure.seed))[:TOLD]
    lines = [line for failure in in_full for line in failure.lines()] if not quiet else []
    lines += [
        f"seed {failure.seed} broke a promise: {failure.verdict.broken}; see it with: {failure.replay}"
        for failure in failures
        if quiet or failure not in in_full
    ]
    lines += [f"never met, so that nothing is known about it: {what}" for what in never]
    how = f"{len(failures)} broke a promise" if failures else "every promise held"
    return [*lines, f"{count} {'seed' if count == 1 else 'seeds'}, {how}; {seconds_text(took_s)}"]
