"""The mutants of `mutants.toml`, and copies of the tree in which they are planted."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = next(folder for folder in HERE.parents if (folder / "pyproject.toml").exists())
LIST = HERE / "mutants.toml"
SWEPT = ("aggregation", "protocols")
"""The layers whose mutants a sweep is to find."""
CONVERSATIONS = {
    "gossip": ("protocols/gossip/", "protocols/swim/", "aggregation/mixing/"),
    "parameter_server": (
        "protocols/parameter_server/",
        "aggregation/server/",
        "aggregation/filters/",
        "aggregation/consistency.py",
    ),
}
"""The files that one conversation alone uses. All else is swept with local SGD, which uses all of that."""
USUAL = "allreduce"
SEEDS, SEED_S_MAX = 300, 300
"""The seeds of a sweep, and the seconds after which one of them does not end."""
CHECKERS = "sims/checkers"
"""The folder of the promises of a sweep, which judge runs and change none."""
TEST_S_MAX = 90
"""A test that takes longer has failed, if it takes less without the mutant."""


@dataclass(frozen=True)
class Edit:
    file: str
    old: str
    new: str

    def applied(self, tree: Path) -> str:
        """The file's text after the edit. Raises ValueError unless `old` stands there exactly once."""
        text = (tree / self.file).read_text("utf-8")
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {times} times: {self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """`breaks`: what no longer holds, its name. `survives`: why no test, or no seed, notices it, "" if both do.
    `used_by`: the conversation that alone uses the edited lines of a file that others use too; "": no line is so."""

    breaks: str
    edits: tuple[Edit, ...]
    survives: str = ""
    used_by: str = ""

    @property
    def layer(self) -> str:
        return self.edits[0].file.split("/")[0]

    @property
    def conversation(self) -> str:
        """The conversation whose seeds are to notice it."""
        file = self.edits[0].file
        return self.used_by or next((name for name, own in CONVERSATIONS.items() if file.startswith(own)), USUAL)


def mutants() -> list[Mutant]:
    """The list."""
    rows = tomllib.loads(LIST.read_text("utf-8"))["mutant"]
    return [
        Mutant(
            row["breaks"],
            tuple(Edit(one["file"], one["old"], one["new"]) for one in (row, *row.get("also", ()))),
            row.get("survives", ""),
            row.get("used_by", ""),
        )
        for row in rows
    ]


def named(breaks: str) -> Mutant:
    return next(one for one in mutants() if one.breaks == breaks)


_LIBRARY = ("aggregation", "protocols", "peers", "sims")


def fingerprint() -> str:
    """Of the library and its tests, as they are now."""
    return _digest(path for layer in (*_LIBRARY, "tests") for path in sorted((ROOT / layer).rglob("*.py")))


def fingerprint_of_runs() -> str:
    """Of what decides how the seeds of a sweep run and which mutants there are: the library but its checkers, and the
    list."""
    library = (path for layer in _LIBRARY for path in sorted((ROOT / layer).rglob("*.py")))
    return _digest((LIST, *(path for path in library if ROOT / CHECKERS not in path.parents)))


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


_NOWHERE = shutil.ignore_patterns(".*", "*.pyc.*")
_NOT_IN_ROOT = shutil.ignore_patterns("build", "dist", "runs", "shared", "*.egg-info")


def not_copied(folder: str, names: list[str]) -> set[str]:
    """What a copy of the tree has no need of, of the names in a folder. Folders of tests may have the same names."""
    return _NOWHERE(folder, names) | (_NOT_IN_ROOT(folder, names) if Path(folder) == ROOT else set())


class Tree:
    """A copy of the tree, in which `samovar` is the copy. It has the compiled files, too, which are of the same times:
    each process that runs there would else compile the library."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "samovar"
        self._process: subprocess.Popen[str] | None = None
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(ROOT, self.root, ignore=not_copied)

    def plant(self, mutant: Mutant) -> None:
        for edit in mutant.edits:
            self.write(edit.file, edit.applied(self.root))

    def restore(self, mutant: Mutant) -> None:
        for edit in mutant.edits:
            self.write(edit.file, (ROOT / edit.file).read_text("utf-8"))

    def write(self, file: str, text: str) -> None:
        """Make `text` the text of a file of the copy."""
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()  # a file of equal length, written in the same second, would be taken for the old one

    def run(self, code: str, *words: str, limit_s: float) -> tuple[int | None, str]:
        """Run Python `code` in the tree; returns the exit code, None: it took longer than `limit_s`, and the output."""
        tests = self.root / HERE.relative_to(ROOT)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.root.parent}{os.pathsep}{tests}",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",  # the threads of a small sum mostly wait for each other
        }
        with subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as self._process:
            try:
                out, _ = self._process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                self.stop()
                return None, self._process.communicate()[0]
        return self._process.returncode, out

    def stop(self) -> None:
        """End what runs here, and all that it has started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
