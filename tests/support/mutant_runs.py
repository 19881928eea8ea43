"""What runs in a tree with a mutant: tests until one fails, or seeds until one breaks a promise."""

from __future__ import annotations

import faulthandler
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from mutant_list import SEED_S_MAX, SEEDS, TEST_S_MAX


class Recorder:
    """A plugin of pytest: writes what passed, and what failed first. `only`: the tests to run, each with its case or
    with all its cases; none: all tests."""

    def __init__(self, file: Path, only: Sequence[str]) -> None:
        self._file, self._only = file, {*only}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only:
            items[:] = [item for item in items if self._only & {item.nodeid, item.nodeid.split("[")[0]}]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._tell("failed", report.nodeid)
        elif report.when == "call" and report.passed:
            self._tell("passed", report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._tell("failed", report.nodeid)

    def _tell(self, outcome: str, test: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{outcome} {test}\n")


def run_tests(record: str, *words: str) -> int:
    """Run the tests of these files, or names, until one fails. `record`: the file for what passes and fails. A name
    that its file has no more is no error."""
    names = [word for word in words if not word.startswith("--deselect=")]
    files = dict.fromkeys(name.split("::")[0] for name in names)
    quick = ["-m", "not soak", f"--timeout={TEST_S_MAX}", "-o", "faulthandler_timeout=0"]
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", *quick]
    left_out, only = [word for word in words if word not in names], [name for name in names if "::" in name]
    return int(pytest.main([*options, *left_out, *files], plugins=[Recorder(Path(record), only)]))


REACHED = set[str]()
"""The mutants whose statements were executed in a copy of the tree with marks (`mutant_reach`)."""


def run_marked(protocol: str, *seeds: str) -> None:
    """Judge these seeds of that conversation, and print for each the mutants and the places that it reaches."""
    import torch

    from samovar.sims.sweeps.sweep import judge_seed

    torch.set_num_threads(1)
    for seed in seeds:
        REACHED.clear()
        places = judge_seed(int(seed), protocol).reached
        print("reached " + json.dumps([seed, sorted(REACHED), places]), flush=True)
    os._exit(0)


def run_seeds(protocol: str, others: str, *seeds: str) -> None:
    """Judge these seeds of that conversation until one breaks a promise, and print which and how. `others`: the places
    that all other seeds reach, and how often, in JSON; empty: these are not all of a sweep. Ends the process: the loop
    of a mutant may have left threads."""
    reached, seed, held = Counter[str](json.loads(others or "{}")), seeds[0] if seeds else "", 0
    faulthandler.dump_traceback_later(SEED_S_MAX, exit=True)
    try:
        import torch  # which a test that imports nothing need not wait for

        from samovar.sims.sweeps.sweep import judge_seed, unmet  # a mutant may make this fail

        torch.set_num_threads(1)  # as a worker of a sweep shares the processors with the others

        for seed in seeds:
            faulthandler.dump_traceback_later(SEED_S_MAX, exit=True)
            verdict = judge_seed(int(seed), protocol)
            if verdict.broken is not None:
                _end(f"killed seed {seed}: {verdict.promise}")
            reached.update(verdict.reached)
            held += 1
            print(f"held {held}", flush=True)
        if others and (never := unmet({protocol: SEEDS}, reached)):
            _end(f"killed all seeds: never met: {never[0]}")
    except Exception as error:
        _end(f"killed seed {seed}: {type(error).__name__}")
    _end(f"lived {held} seeds")


def _end(told: str) -> NoReturn:
    print(f"\n{told}", flush=True)
    os._exit(0)
