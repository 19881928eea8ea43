"""`make mutants`: is each bug of a checked-in list noticed, and by which test or seed?

The list is `mutants.toml`: edits of one line each. Each mutant is applied to a copy of the tree, and the tests run
there until one fails: first the test that `docs/mutants.md` names, then those nearest to the mutated file. With
`--sweep` the copy runs the seeds of `samovar simulate --sweep 300` instead, until one breaks a promise; the seed that
the page names is the first, and seeds that do not reach the mutant are left out (`mutant_reach`). A test that fails
without the mutant, too, does not count. Results are kept in `build/mutants/`, so a run that was stopped goes on where
it was; delete that folder to begin anew. `--table` writes the page from them.
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property

from mutant_list import ROOT, SEED_S_MAX, SEEDS, SWEPT, TEST_S_MAX, Mutant, Tree, mutants
from mutant_order import Imports, batches
from mutant_page import PAGE, score, table, told
from mutant_reach import Reach
from mutant_results import BUILD, Found, Results

SEED = re.compile(r"seed (\d+)")
_LOCK = threading.Lock()


class Hunt:
    """The search for what kills each mutant."""

    def __init__(self, results: Results, *, limit_s: float) -> None:
        self._results, self._limit_s = results, limit_s
        self._told = told(results.way)
        self._reach = cache(Reach)

    def look(self, wanted: Sequence[Mutant]) -> None:
        """Find out which seeds reach which of these mutants."""
        for name in sorted({mutant.conversation for mutant in wanted}):
            self._reach(name).find()

    @cached_property
    def _imports(self) -> Imports:
        return Imports()

    def by_tests(self, tree: Tree, mutant: Mutant) -> Found:
        began, passed = time.monotonic(), 0
        tree.plant(mutant)
        try:
            for files in [*self._named(tree, mutant), *batches(self._imports, mutant)]:
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

    def _named(self, tree: Tree, mutant: Mutant) -> list[list[str]]:
        """The test that the page names, if its file is there."""
        file, _, name = self._told.get(mutant.breaks, "").partition("::")
        return [[f"{path.relative_to(tree.root)}::{name}"] for path in (tree.root / "tests").rglob(file) if name]

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
            killer = f"{files[0]} (and up to {len(files)} files): {out.strip().splitlines()[-1:]}"[:200]
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
        reaching, places = self._reach(mutant.conversation).of(mutant)
        unlike, others = SEEDS - len(reaching), json.dumps(places)
        tree.plant(mutant)
        try:
            while True:
                left_s = began + self._limit_s - time.monotonic()
                killer, held, whole = self._swept(tree, mutant, self._seeds(mutant, reaching), left_s, others)
                seed = SEED.match(killer)
                if seed is None or self._holds(tree, mutant, seed[1]):
                    return self._found(killer, held + unlike, whole, began)
        finally:
            tree.restore(mutant)

    def _holds(self, tree: Tree, mutant: Mutant, seed: str) -> bool:
        name = f"seed {seed} of {mutant.conversation}"
        return self._is_sound(tree, mutant, name, lambda: self._swept(tree, mutant, [seed], 2 * SEED_S_MAX)[0] == "")

    @staticmethod
    def _swept(
        tree: Tree, mutant: Mutant, seeds: Sequence[str], limit_s: float, others: str = ""
    ) -> tuple[str, int, bool]:
        """The first of the seeds that breaks a promise, and which; how many held; and whether these were all. `others`:
        see `mutant_runs.run_seeds`."""
        if not seeds:
            return "", 0, True  # none of them comes upon it
        code = "import sys, mutant_runs; mutant_runs.run_seeds(*sys.argv[1:])"
        exit_code, out = tree.run(code, mutant.conversation, others, *seeds, limit_s=max(1.0, limit_s))
        held = max([0, *map(int, re.findall(r"^held (\d+)$", out, re.M))])
        if found := re.search(r"^killed (.*)$", out, re.M):
            return found[1], held, False
        if exit_code not in (0, None):
            return f"seed {seeds[held]}: it does not end", held, False
        return "", held, held == len(seeds)

    def _seeds(self, mutant: Mutant, reaching: Sequence[str]) -> list[str]:
        """The seeds that are `reaching` the mutant: first the one that the page names, then those that killed most
        mutants of this conversation. Those that break a promise anyway are left out."""
        akin = [one.breaks for one in mutants() if one.conversation == mutant.conversation]
        found = [known.by for breaks in akin if (known := self._results.found.get(breaks)) is not None]
        named = [self._told.get(breaks, "") for breaks in (mutant.breaks, *akin)]
        known = Counter(seed[1] for by in (*found, *named) if (seed := SEED.match(by)))
        own = [seed[1]] if (seed := SEED.match(named[0])) else []
        ordered = dict.fromkeys([*own, *(seed for seed, _ in known.most_common()), *reaching])
        return [
            seed
            for seed in ordered
            if seed in reaching and self._results.sound.get(f"seed {seed} of {mutant.conversation}", True)
        ]

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
    if sweep:
        quest.look(due)

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
