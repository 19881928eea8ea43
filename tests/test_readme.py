"""The README is true: its commands are run as they stand there, one after the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line.split(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
MADE = [command for command in COMMANDS if command.startswith("make ")]
RUN = [command for command in COMMANDS if command not in MADE and "..." not in command]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader stands: in a clone, with the commands on the path."""
    home = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "examples", home / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return home


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, shell=True, cwd=home, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )


def test_the_readme_has_the_commands_that_this_file_thinks_it_has() -> None:
    assert set(MADE) == {"make demo", "make test"}
    assert len(RUN) >= 9
    left_out = set(COMMANDS) - set(MADE) - set(RUN)
    assert left_out == {"samovar join tcp://192.0.2.7:41234 examples/digits.py --invite ..."}  # see test_processes


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_the_readme_works(command: str, home: Path) -> None:
    ended = run(command, home)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_run_of_the_readme_leaves_what_it_says(home: Path) -> None:
    """In the order of the file: the commands above have been run."""
    if not (home / "runs" / "mine").exists():
        pytest.skip("the commands were not run before this")
    assert (home / "runs/mine/report.html").exists()
    assert (home / "runs/mine/trace.json").exists()


def test_make_demo_is_the_command_that_the_readme_shows() -> None:
    told = subprocess.run(["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True).stdout
    assert "samovar train examples/digits.py --peers 4 --period adaptive" in told


def test_the_task_file_in_the_readme_has_the_functions_of_the_example() -> None:
    shown = re.findall(r"^def (\w+)\(", README, re.MULTILINE)
    example = (ROOT / "examples/digits.py").read_text("utf-8")
    assert shown == ["model", "data", "loss", "evaluate", "optimizer"]
    assert set(shown) <= set(re.findall(r"^def (\w+)\(", example, re.MULTILINE))


def test_every_file_that_the_readme_points_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
