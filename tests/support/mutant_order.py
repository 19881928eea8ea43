"""Which tests are run first for a mutant: those that are few imports away from its file, or have its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mutant_list import ROOT, Mutant
from order import LONGEST

NEAR = (4, 12)
"""How many test files are run first, and then next; all quick ones after that, and the slow ones one by one."""
SLOW = LONGEST[:16]
"""The test files that are run one by one: each such run costs a start, so only the very longest are."""
OF_WHOLE_RUNS = "test_sweep"
"""The file that judges whole simulated runs: what is wrong in a protocol is often seen only there."""
LAYERS = ("aggregation", "protocols", "peers", "sims")
OWN = "test_mutants"
"""The file that holds the list against the tree: it notices every mutant, which shows nothing."""


def _imported(path: Path, package: Sequence[str]) -> Iterator[str]:
    """The dotted names that a file imports, of modules or of what is in them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


class Imports:
    """Which files import which, of the library and of the tests."""

    def __init__(self) -> None:
        library = [*ROOT.glob("*.py"), *(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))]
        self._files = {_module(path): path for path in library}
        self._helpers = {path.stem: path for path in (ROOT / "tests").rglob("*.py")}
        self.tests = sorted(path for path in self._helpers.values() if path.stem.startswith("test_"))
        self._uses = {path: self._used(path) for path in (*library, *self._helpers.values())}

    def _used(self, path: Path) -> set[Path]:
        package = ["samovar", *path.relative_to(ROOT).parts[:-1]]
        known = self._files if path.stem not in self._helpers else self._files | self._helpers
        return {known[name] for name in _imported(path, package) if name in known} - {path}

    def distance(self, test: Path, file: Path) -> float:
        """How many imports lie between the two; infinite if none leads there."""
        seen, edge, steps = {test}, {test}, 0
        while edge:
            if file in edge:
                return steps
            edge = set().union(*(self._uses[path] for path in edge)) - seen
            seen |= edge
            steps += 1
        return float("inf")

    def starts_processes(self, test: Path) -> bool:
        return bool(re.search(r"^import subprocess|^from live import|^import live", test.read_text("utf-8"), re.M))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("samovar", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _words(name: str) -> set[str]:
    """The words of a file's name and folders, in the singular."""
    return {word.removesuffix("s") for word in re.findall(r"[a-z]+", name.removesuffix(".py"))}


def batches(imports: Imports, mutant: Mutant) -> list[list[str]]:
    """The test files in the order in which they are run: near ones before far ones, quick ones before slow ones. Slow
    are those that take longest, and those that start processes and have no word of the file's path in their names."""
    file = ROOT / mutant.edits[0].file
    words = _words("/".join(file.relative_to(ROOT).parts[1:])) - {"file"}
    akin = {test for test in imports.tests if words & _words(test.stem)}

    def key(test: Path) -> tuple[float, str]:
        return imports.distance(test, file) - 1.5 * (test in akin), test.stem

    def is_slow(test: Path) -> bool:
        return test.stem in SLOW or (imports.starts_processes(test) and test not in akin)

    ranked = sorted((test for test in imports.tests if test.stem != OWN), key=key)
    late = [test for test in ranked if is_slow(test)]
    quick = [test for test in ranked if test not in late]
    first, second, others = quick[: NEAR[0]], quick[NEAR[0] : sum(NEAR)], quick[sum(NEAR) :]
    runs = [test for test in late if test.stem == OF_WHOLE_RUNS and mutant.layer == "protocols"]
    named = [first, runs, second, others, *([test] for test in late if test not in runs)]
    return [[test.relative_to(ROOT).as_posix() for test in batch] for batch in named if batch]
