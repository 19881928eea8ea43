"""The README is true: its commands are run as they stand there, one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import STEPS, examples, words
from live import ROOT, verb
from nursery import Forked
from tiers import soaked

from samovar.peers.checkpoints.checkpoint import load
from samovar.protocols.shared_memory.machine import machine

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line.split(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
MADE = [command for command in COMMANDS if command.startswith("make ")]
RUN = [command for command in COMMANDS if command not in MADE and "..." not in command]


AS_A_USER = "samovar train examples/digits.py --peers 4"
"""Of quick commands only this is started in processes as it is, which import all that they need."""


@dataclass(frozen=True)
class Home:
    """Where a reader stands: in a clone, with the commands on the path. Quick: runs are over in a moment."""

    folder: Path
    quick: bool
    ended: dict[str, Ended] = field(default_factory=dict)
    """By command, once it was run."""

    @property
    def least(self) -> float:
        """The accuracy that a model of the examples reaches."""
        return 0.5 if self.quick else 0.95


@pytest.fixture(scope="module", params=[True, soaked(False)], ids=["quick", "whole"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("clone")
    examples(folder, request.param)
    return Home(folder, request.param)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    runs: set[Path]
    """Folders of runs that it made."""


def ended(command: str, home: Home) -> Ended:
    if command not in home.ended:
        before = set(home.folder.glob("runs/*"))
        done = run(command, home)
        home.ended[command] = Ended(*done, set(home.folder.glob("runs/*")) - before)
    return home.ended[command]


def run(command: str, home: Home) -> tuple[int, str, str]:
    """Only a run's launcher and a script are started in processes of their own."""
    program, *arguments = words(command, home.quick)
    if program == "samovar" and (arguments[0] != "train" or (home.quick and command != AS_A_USER)):
        with contextlib.chdir(home.folder):
            done = verb(*arguments)
        return done.exit_code, done.stdout, done.stderr
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    one_thread = "1"  # several that share a busy machine mostly wait for each other
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": one_thread}
    if program == "python" and home.quick:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        script = Forked([program, *arguments], cwd=home.folder, env=environment, **pipes)
        out, err = script.communicate(timeout=300)
        return script.returncode, out, err
    process = subprocess.run(
        [program, *arguments],
        cwd=home.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return process.returncode, process.stdout, process.stderr


def test_the_readme_has_the_commands_that_this_file_thinks_it_has() -> None:
    assert set(MADE) == {"make demo", "make test"}
    assert len(RUN) >= 9
    left_out = set(COMMANDS) - set(MADE) - set(RUN)
    there = "samovar join tcp://192.0.2.7:41234"  # see test_processes, and test_script_processes
    assert left_out == {f"{there} examples/{name}.py --invite ..." for name in ("digits", "existing_loop")}


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_the_readme_works(command: str, home: Home) -> None:
    done = ended(command, home)
    assert done.code == 0, done.out + done.err


def test_a_run_of_the_readme_leaves_its_report_and_its_trace(home: Home) -> None:
    """In the order of the file: the commands above have been run."""
    if not (home.folder / "runs" / "mine").exists():
        pytest.skip("the commands were not run before this")
    assert (home.folder / "runs/mine/report.html").exists()
    assert (home.folder / "runs/mine/trace.json").exists()


def test_four_peers_train_a_real_model_and_tell_the_bytes_on_the_wire(home: Home) -> None:
    (run,) = ended("samovar train examples/digits.py --peers 4", home).runs
    result = json.loads((run / "result.json").read_text())
    assert result["accuracy"] >= home.least
    assert [peer["steps"] for peer in result["peers"]] == [STEPS if home.quick else 2000] * 4
    assert {"accuracy", "loss", "wall_s", "rounds", "peers", "lost"} <= set(result)
    assert {"steps", "bytes_sent", "bytes_received", "compute_s", "wait_s"} <= set(result["peers"][0])
    sent, received = (sum(peer[key] for peer in result["peers"]) for key in ("bytes_sent", "bytes_received"))
    last_words = 256 * 4 * 3  # bytes: the last pulses of a peer may reach another that has counted already
    assert sent == pytest.approx(received, rel=0.02, abs=last_words)
    assert result["lost"] == []
    model = load(run / "checkpoint/peer-0.safetensors").tensors["state/vector"]
    for peer in result["peers"]:  # what is not sent because it is in memory that they share is told as that
        assert peer["bytes_shared"] >= (2 * peer["rounds"] * model.nbytes if machine() else 0)
    assert (">Shared<" in (run / "report.html").read_text("utf-8")) is bool(machine())
    assert (run / "trace.json").exists()


def test_the_loop_of_the_readme_trains_under_the_launcher_and_alone(home: Home) -> None:
    (run,) = ended("samovar train examples/existing_loop.py --peers 4", home).runs
    logs = list(run.glob("peer-?.log"))
    assert len(logs) == 4
    alone = ended("python examples/existing_loop.py", home)
    for said in (alone.out, *(log.read_text() for log in logs)):
        told = re.fullmatch(r"accuracy (\d\.\d+)\n", said)
        assert told is not None, said
        assert float(told[1]) >= home.least
    assert re.search(r"join from another machine: samovar join tcp://\S+ examples/existing_loop\.py --inv", alone.err)


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
