"""Every benchmark begins, and those who run them all hear of each that fails."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from live import ROOT, python

BENCHMARKS = ROOT / "benchmarks"
BEGIN_EACH = """
import contextlib, io, runpy, sys, traceback
from pathlib import Path
for file in map(Path, sys.argv[1:]):
    sys.path.insert(0, str(file.parent))
    sys.argv, out, ended = [file.name, "--help"], io.StringIO(), "no exit"
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        ended = end.code
    except BaseException:
        ended = traceback.format_exc().splitlines()[-1]
    print(file.stem, "begins" if ended == 0 and "--quick" in out.getvalue() else f"does not begin: {ended}")
"""
"""In one process, as PyTorch takes seconds to import."""


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("_all")


def begun(files: list[Path]) -> dict[str, str]:
    """What each said, by its name."""
    done = python("-c", BEGIN_EACH, *files)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def planted(folder: Path, name: str, body: str) -> Path:
    file = folder / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'import sys\nif __name__ == "__main__":\n    {body}\n')
    return file


def test_every_benchmark_is_run_and_no_helper_of_one(every: ModuleType) -> None:
    names = {file.stem for file in every.scripts()}
    assert {"allreduce", "cost_model", "hostile", "overhead", "adacomm", "diloco", "real_links"} <= names
    called = {line.split("benchmarks/", 1)[1].split(".py")[0] for line in told_commands()}
    assert names == {name.removeprefix("papers/") for name in called}, "what a script says of how it is run"


def told_commands() -> list[str]:
    """``python benchmarks/...`` of the docstrings."""
    files = [*BENCHMARKS.glob("[!_]*.py"), *BENCHMARKS.glob("papers/[!_]*.py")]
    lines = [line.strip() for file in files for line in file.read_text("utf-8").splitlines()]
    return [line for line in lines if line.startswith("python benchmarks/")]


def test_every_benchmark_begins_and_knows_its_quick_form(every: ModuleType) -> None:
    files = every.scripts()
    assert begun(files) == {file.stem: "begins" for file in files}


def test_a_benchmark_that_does_not_begin_is_found(tmp_path: Path) -> None:
    lost = planted(tmp_path, "lost", "import no_such_module")
    dumb = planted(tmp_path, "dumb", "sys.exit(0)")
    said = begun([lost, dumb])
    assert "No module named 'no_such_module'" in said["lost"]
    assert said["dumb"] == "does not begin: 0"


def test_a_benchmark_that_fails_or_misses_its_goal_is_told_and_stops_no_other(
    every: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bodies = {
        "bad": "raise ValueError", "far": "sys.exit(3)", "papers/none": "sys.exit(77)", "papers/wide": "open('it', 'w')"
    }  # fmt: skip
    files = [planted(tmp_path, name, body) for name, body in bodies.items()]
    planted(tmp_path, "_helper", "sys.exit(4)")
    (tmp_path / "common.py").write_text("x = 1\n")
    assert every.scripts(tmp_path) == files
    assert every.run_all(files, ["--quick"], tmp_path / "figures") == 1
    table = [line.split() for line in capfd.readouterr().out.splitlines()[-4:]]
    here = tmp_path.name
    assert [row[:-2] for row in table] == [
        f"{here}/bad.py FAILED exit code 1".split(), f"{here}/far.py MISSED exit code 3".split(),
        "papers/none.py skipped exit code 77".split(), "papers/wide.py passed exit code 0".split()
    ]  # fmt: skip
    assert (tmp_path / "figures" / "it").exists()
    assert every.run_all(files[1:], [], tmp_path) == 1
    assert every.run_all(files[2:], [], tmp_path / "figures") == 0


def test_where_no_links_can_be_made_the_cost_model_is_skipped_and_says_why() -> None:
    done = python(BENCHMARKS / "cost_model.py", "--quick", env={**os.environ, "PATH": ""})
    assert done.returncode == 77
    assert done.stderr.splitlines() == [
        "network namespaces with shaped links cannot be made here: this machine has no unshare"
    ]


def test_no_benchmark_stands_for_a_module_of_python() -> None:
    """A script's folder comes first where Python, and mypy, look for a module."""
    files = [*BENCHMARKS.glob("*.py"), *BENCHMARKS.glob("papers/*.py")]
    assert {"cost_model", "diloco"} <= {file.stem for file in files}
    assert [file.name for file in files if file.stem in sys.stdlib_module_names] == []


def test_a_ratio_below_its_goal_is_told_apart_from_an_error(every: ModuleType) -> None:
    rows = [{"work": "w", "ratio": ratio, "goal": 1.0} for ratio in (None, 1.0, 0.99)]
    assert [importlib.import_module("common").missed([row]) for row in rows] == [0, 0, 3]
