"""`make mutants`: is each bug of a checked-in list noticed, and by which test or seed?

The list is `mutants.toml`: edits of one line each. Each mutant is applied to a copy of the tree, and the tests run
there, those nearest to the mutated file first, until one fails. With `--sweep` the copy runs the seeds of
`samovar simulate --sweep 300` instead, until one breaks a promise. A test that fails without the mutant, too, does not
count. Results are kept in `build/mutants/`, so a run that was stopped goes on where it was; delete that folder to begin
anew. `--table` writes `docs/mutants.md` from them.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property

from mutant_list import ROOT, SEED_S_MAX, SEEDS, SWEPT, TEST_S_MAX, Mutant, Tree, fingerprint, mutants
from mutant_order import Imports, batches

BUILD = ROOT / "build" / "mutants"
PAGE = ROOT / "docs" / "mutants.md"


@dataclass
class Found:
    """What became of a mutant. `by`: the test or seed that kills it, "" if it lives; `after`: the number of tests or
    seeds that it survived; `whole`: whether these were all."""

    by: str
    after: int
    whole: bool
    took_s: float
    on: str


class Results:
    """What was found in one way, kept in a file. `found`: by mutant; `sound`: whether a test passes without one, which
    is known of the present tree only."""

    def __init__(self, way: str) -> None:
        self._file = BUILD / f"{way}.json"
        plain = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {"found": {}, "sound": {}}
        self.found = {breaks: Found(**row) for breaks, row in plain["found"].items()}
        self._tree = fingerprint()
        self.sound: dict[str, bool] = plain["sound"] if plain.get("tree") == self._tree else {}

    def knows(self, mutant: Mutant, limit_s: float) -> bool:
        """Whether that mutant is not to be tried again, with a limit of so many seconds."""
        found = self.found.get(mutant.breaks)
        return found is not None and (bool(found.by) or found.whole or found.took_s >= limit_s)

    def keep(self) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        found = {breaks: asdict(found) for breaks, found in self.found.items()}
        plain = {"tree": self._tree, "found": found, "sound": self.sound}
        beside = self._file.with_suffix(".tmp")
        beside.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        beside.replace(self._file)


_LOCK = threading.Lock()


class Hunt:
    """The search for what kills each mutant."""

    def __init__(self, results: Results, *, limit_s: float) -> None:
        self._results, self._limit_s = results, limit_s

    @cached_property
    def _imports(self) -> Imports:
        return Imports()

    def by_tests(self, tree: Tree, mutant: Mutant) -> Found:
        began, passed = time.monotonic(), 0
        tree.plant(mutant)
        try:
            for files in batches(self._imports, mutant):
                while True:
                    left_s = self._limit_s - (time.monotonic() - began)
                    if left_s <= 0:
                        return self._found("", passed, False, began)
                    good, killer, ended = self._ran(tree, files, left_s)
                    if killer and not self._passes(tree, mutant, killer):
                        continue
                    passed += good
                    if killer:
                        return self._found(killer, passed, False, began)
                    if not ended:
                        return self._found("", passed, False, began)
                    break
            return self._found("", passed, True, began)
        finally:
            tree.restore(mutant)

    def _ran(self, tree: Tree, files: Sequence[str], limit_s: float) -> tuple[int, str, bool]:
        """How many tests passed, the first that failed, and whether they came to an end."""
        record = tree.root.parent / "record.txt"
        record.unlink(missing_ok=True)
        unsound = [f"--deselect={test}" for test, sound in self._results.sound.items() if not sound]
        code = "import sys, mutant_runs; sys.exit(mutant_runs.run_tests(*sys.argv[1:]))"
        exit_code, out = tree.run(code, str(record), *files, *unsound, limit_s=limit_s)
        lines = record.read_text("utf-8").splitlines() if record.exists() else []
        killer = next((line.removeprefix("failed ") for line in lines if line.startswith("failed ")), "")
        if exit_code not in (0, 5, None) and not killer:  # 5: nothing was left to run
            killer = f"{files[0]} (and up to {len(files)} files): {out.strip().splitlines()[-1:]}"
        return sum(line.startswith("passed ") for line in lines), killer, exit_code is not None

    def _passes(self, tree: Tree, mutant: Mutant, test: str) -> bool:
        words = [test.split(" (and")[0]]
        return self._is_sound(tree, mutant, test, lambda: self._ran(tree, words, 10 * TEST_S_MAX)[1:] == ("", True))

    def _is_sound(self, tree: Tree, mutant: Mutant, name: str, again: Callable[[], bool]) -> bool:
        """Whether that test passes, or that seed holds, without the mutant; `again` tries it."""
        if name not in self._results.sound:
            tree.restore(mutant)
            sound = again()
            tree.plant(mutant)
            with _LOCK:
                self._results.sound[name] = sound
                self._results.keep()
            if not sound:
                print(f"    {name} fails without a mutant, too", flush=True)
        return self._results.sound[name]

    def by_sweep(self, tree: Tree, mutant: Mutant) -> Found:
        began = time.monotonic()
        tree.plant(mutant)
        try:
            while True:
                killer, held, whole = self._swept(tree, self._seeds(), began + self._limit_s - time.monotonic())
                seed = killer.split(":")[0].removeprefix("seed ")
                if not seed.isdigit() or self._holds(tree, mutant, seed):
                    return self._found(killer, held, whole, began)
        finally:
            tree.restore(mutant)

    def _holds(self, tree: Tree, mutant: Mutant, seed: str) -> bool:
        return self._is_sound(tree, mutant, f"seed {seed}", lambda: self._swept(tree, [seed], 2 * SEED_S_MAX)[0] == "")

    @staticmethod
    def _swept(tree: Tree, seeds: Sequence[str], limit_s: float) -> tuple[str, int, bool]:
        """The first of the seeds that breaks a promise, and which; how many held; and whether these were all."""
        code = "import sys, mutant_runs; mutant_runs.run_seeds(*sys.argv[1:])"
        exit_code, out = tree.run(code, *seeds, limit_s=max(1.0, limit_s))
        held = max([0, *map(int, re.findall(r"^held (\d+)$", out, re.M))])
        if found := re.search(r"^killed (.*)$", out, re.M):
            return found[1], held, False
        if exit_code not in (0, None):
            return f"seed {seeds[held]}: it does not end", held, False
        return "", held, held == len(seeds)

    def _seeds(self) -> list[str]:
        """The seeds of a sweep, those that killed most mutants first, without those that break a promise anyway."""
        killers = Counter(found.by.split(":")[0] for found in self._results.found.values() if found.by)
        ordered = dict.fromkeys([*(by for by, _ in killers.most_common()), *(f"seed {seed}" for seed in range(SEEDS))])
        sound = [by for by in ordered if by.startswith("seed ") and self._results.sound.get(by, True)]
        return [by.removeprefix("seed ") for by in sound]

    @staticmethod
    def _found(by: str, after: int, whole: bool, began: float) -> Found:
        return Found(by, after, whole, round(time.monotonic() - began, 1), time.strftime("%Y-%m-%d"))


def hunt(wanted: Sequence[Mutant], *, sweep: bool, jobs: int, limit_s: float) -> None:
    """Find what kills each mutant, and keep it. What is known is left out; what came to no end is tried again when the
    limit is higher."""
    results = Results("sweep" if sweep else "tests")
    due = [mutant for mutant in wanted if not results.knows(mutant, limit_s)]
    quest, done = Hunt(results, limit_s=limit_s), len(wanted) - len(due)
    copies = [Tree(BUILD / f"tree-{'sweep' if sweep else 'tests'}-{number}") for number in range(min(jobs, len(due)))]
    trees = queue.SimpleQueue[Tree]()
    for tree in copies:
        trees.put(tree)

    def one(mutant: Mutant) -> None:
        nonlocal done
        tree = trees.get()
        try:
            found = (quest.by_sweep if sweep else quest.by_tests)(tree, mutant)
        finally:
            trees.put(tree)
        with _LOCK:
            results.found[mutant.breaks] = found
            results.keep()
            done += 1
        what = f"killed by {found.by}" if found.by else f"LIVES after {found.after} {'seeds' if sweep else 'tests'}"
        print(f"{done}/{len(wanted)} {mutant.breaks}: {what}; {found.took_s:.0f} s", flush=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        try:
            for _ in pool.map(one, due):
                pass
        except KeyboardInterrupt:
            with _LOCK:  # what is ended here tells nothing, so nothing more is kept
                for tree in copies:
                    tree.stop()
                os._exit(130)


def score() -> list[str]:
    """A line for each way."""
    lines = []
    for way, name, asked in (
        ("tests", "`make test`", mutants()),
        ("sweep", f"`samovar simulate --sweep {SEEDS}`", [one for one in mutants() if one.layer in SWEPT]),
    ):
        found = [known for one in asked if (known := Results(way).found.get(one.breaks)) is not None]
        killed, took_s = sum(bool(one.by) for one in found), sum(one.took_s for one in found)
        open_ = len(asked) - sum(bool(one.by) or one.whole for one in found)
        rest = f"{open_} not tried to the end" if open_ else f"{100 * killed / len(asked):.0f} %"
        lines.append(f"{name}: {killed} of {len(asked)} killed, {rest}; {took_s / 60:.0f} minutes of one worker")
    return lines


def table() -> str:
    """The page."""
    tests, sweep = Results("tests").found, Results("sweep").found

    def cell(column: Mapping[str, Found], mutant: Mutant) -> str:
        found = column.get(mutant.breaks)
        if found is None:
            return ""
        if not found.by:
            return f"survives {found.after:,}{'' if found.whole else ' so far'}"
        return found.by.replace("|", "\\|") if found.by.startswith(("seed", "all")) else f"`{_short(found.by)}`"

    rows = [f"| {one.breaks} | `{one.edits[0].file}` | {cell(tests, one)} | {cell(sweep, one)} |" for one in mutants()]
    living = [f"- *{one.breaks}*: {one.survives}" for one in mutants() if one.survives]
    last = max((found.on for found in (*tests.values(), *sweep.values())), default="never")
    return "\n".join(
        [
            *HEAD,
            "",
            *(f"- {line}" for line in score()),
            "",
            f"Last result: {last}. Commands: `make mutants`, `make mutants OPTIONS=--sweep`.",
            "",
            *(["Why some survive the tests or the sweep:", "", *living, ""] if living else []),
            "| what it breaks | file | test that kills it | seed that kills it |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


HEAD = """\
# Mutants: how much the tests notice

`tests/support/mutants.toml` is a list of bugs, one line each. `make mutants` applies each to a copy of the tree and
runs the tests there, those nearest to the mutated file first, until one fails. `make mutants OPTIONS=--sweep` runs the
seeds of `samovar simulate --sweep 300` instead. This page is written by `make mutants OPTIONS=--table`.
""".splitlines()


def _short(test: str) -> str:
    return test.split("/")[-1].replace("|", "\\|")[:120]


def main() -> None:
    asked = argparse.ArgumentParser(prog="make mutants OPTIONS=...", description=__doc__.split("\n")[0])
    asked.add_argument("--only", metavar="WORDS", help="mutants whose line, or file, has these words")
    asked.add_argument("--sweep", action="store_true", help="run seeds in place of tests")
    asked.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at a time")
    asked.add_argument("--limit-s", type=float, default=900.0, metavar="S", help="seconds for each mutant, at most")
    asked.add_argument("--table", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and run nothing")
    options = asked.parse_args()
    if options.table:
        PAGE.write_text(table(), encoding="utf-8")
        return
    wanted = [
        mutant
        for mutant in mutants()
        if (not options.only or options.only in f"{mutant.breaks} {mutant.edits[0].file}")
        and (not options.sweep or mutant.layer in SWEPT)
    ]
    hunt(wanted, sweep=options.sweep, jobs=options.jobs, limit_s=options.limit_s)
    print("\n".join(score()))


if __name__ == "__main__":
    main()
