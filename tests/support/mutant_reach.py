"""Which seeds of a sweep reach which mutants, so that only those have to be run with the mutant.

Equal seeds give equal runs, so a seed whose run without the mutant never executes an edited statement has the same run
with it. One sweep without mutants, in a copy of the tree with a mark before each statement that a mutant edits, tells
which seeds execute which. What it finds is kept in `build/mutants/` for as long as the library stays as it is; the
checkers may change, because they only judge.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator, Sequence

import mutant_results
from mutant_list import ROOT, SEED_S_MAX, SEEDS, Mutant, Tree, fingerprint_of_runs, mutants


class Reach:
    """The seeds of one conversation, with the mutants that each reaches."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._wanted = [mutant for mutant in mutants() if mutant.conversation == conversation]
        self._file = mutant_results.BUILD / f"reach-{conversation}.json"
        self._tree = fingerprint_of_runs()
        plain = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        self._seeds: dict[str, tuple[list[str], dict[str, int]]] = (
            plain["seeds"] if plain.get("tree") == self._tree else {}
        )

    def find(self) -> None:
        """Run all seeds that were not run yet. What is found is kept, whenever this is stopped."""
        due = [str(seed) for seed in range(SEEDS) if str(seed) not in self._seeds]
        if not due:
            return
        print(f"looking which seeds of {self._conversation} reach which mutants", flush=True)
        tree = Tree(mutant_results.BUILD / f"tree-reach-{self._conversation}")
        for file in {edit.file for mutant in self._wanted for edit in mutant.edits}:
            tree.write(file, with_marks(_text(file), file, self._wanted))
        code = "import sys, mutant_runs; mutant_runs.run_marked(*sys.argv[1:])"
        for at in range(0, len(due), 20):
            some = due[at : at + 20]
            _, out = tree.run(code, self._conversation, *some, limit_s=SEED_S_MAX * len(some))
            for line in out.splitlines():
                if line.startswith("reached "):
                    seed, marks, places = json.loads(line.removeprefix("reached "))
                    self._seeds[seed] = marks, places
            mutant_results.BUILD.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"tree": self._tree, "seeds": self._seeds}), encoding="utf-8")

    def of(self, mutant: Mutant) -> tuple[list[str], Counter[str]]:
        """The seeds that may run otherwise with this mutant; and the places that the other seeds reach, and how
        often."""
        seeds, places, always = list[str](), Counter[str](), self._always(mutant)
        for seed in map(str, range(SEEDS)):
            marks, reached = self._seeds.get(seed, ([mutant.breaks], {}))
            if always or mutant.breaks in marks:
                seeds.append(seed)
            else:
                places.update(reached)
        return seeds, places

    @staticmethod
    def _always(mutant: Mutant) -> bool:
        """Whether an edit is outside of any function, so that it is executed with the import."""
        found = ((_text(edit.file), edit.old) for edit in mutant.edits)
        return not all(inside for text, old in found for inside, _ in _edited(ast.parse(text), _lines(text, old)))


def _text(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


def with_marks(text: str, file: str, wanted: Sequence[Mutant]) -> str:
    """The text of a file with a call before each statement that a mutant edits, which notes the mutant."""
    tree = ast.parse(text)
    marks: list[tuple[ast.stmt, str]] = []
    for mutant in wanted:
        for edit in mutant.edits:
            if edit.file == file:
                marks += [(one, mutant.breaks) for inside, one in _edited(tree, _lines(text, edit.old)) if inside]
    for one, name in marks:
        _put_before(tree, one, ast.parse(f"_REACHED.add({name!r})").body[0])
    at = next(number for number, one in enumerate(tree.body) if not _leads(one))
    tree.body[at:at] = ast.parse("from mutant_runs import REACHED as _REACHED").body
    return ast.unparse(tree) + "\n"


def _leads(one: ast.stmt) -> bool:
    docstring = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    return docstring or (isinstance(one, ast.ImportFrom) and one.module == "__future__")


def _lines(text: str, old: str) -> tuple[int, int]:
    """The first and the last line of `old` in `text`, counted from 1."""
    begin = text.index(old) + len(old) - len(old.lstrip())
    first = text.count("\n", 0, begin) + 1
    return first, first + old.strip().count("\n")


def _edited(tree: ast.Module, lines: tuple[int, int]) -> Iterator[tuple[bool, ast.stmt]]:
    """The statements that have some of these lines, and whether each is inside a function. Of a statement with a body
    its head counts; of the head of a function or a class, nothing is inside."""

    def walk(body: Sequence[ast.stmt], inside: bool) -> Iterator[tuple[bool, ast.stmt]]:
        for one in body:
            parts = [part for part in _bodies(one) if part]
            last = max(one.lineno, min(part[0].lineno for part in parts) - 1) if parts else one.end_lineno or one.lineno
            function = isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            if one.lineno <= lines[1] and lines[0] <= last:
                yield inside and not function and not isinstance(one, ast.ClassDef), one
            for part in parts:
                yield from walk(part, function or (inside and not isinstance(one, ast.ClassDef)))

    yield from walk(tree.body, False)


def _bodies(one: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a statement."""
    for name in ("body", "orelse", "finalbody"):
        part = getattr(one, name, None)
        if isinstance(part, list):
            yield part
    for case in (*getattr(one, "handlers", ()), *getattr(one, "cases", ())):
        yield case.body


def _put_before(tree: ast.Module, one: ast.stmt, new: ast.stmt) -> None:
    for node in ast.walk(tree):
        for part in _bodies(node):
            if one in part:
                part.insert(part.index(one), new)
                return
