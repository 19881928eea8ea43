"""Ends of real processes, and of what they write to: what a signal, a full disk or a removed folder leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live import STEADY, Live, samovar
from tiers import soaked

from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.launch.control import CONTROL_VARIABLE

TRAIN = ("train", STEADY, "--peers", 4, "--period", 8, "--run", "run", "--json", "--no-report")
NEVER = ("--checkpoint-every-s", 1_000_000)
"""Only after the first round, and at an end."""


def saved(run: Live, peer: str) -> int:
    kept = load(run.folder / f"checkpoint/peer-{peer}.safetensors").numbers["state"]["round"]
    assert isinstance(kept, int)
    return kept


@pytest.mark.skipif(sys.platform != "linux", reason="peers are forked on Linux only")
def test_neither_the_fork_servers_end_nor_a_signal_costs_a_round(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, *NEVER, "--steps", 100_000, "--patience-s", 10_000)
    run.until(lambda: run.rounds() >= 3, "round 3")
    peers = run.peers()
    (zygote,) = {peer.parent() for peer in peers.values()}
    assert zygote is not None
    zygote.kill()
    before = run.rounds()
    run.until(lambda: run.rounds("0") >= before + 5, "rounds without the fork server")
    peers["2"].send_signal(signal.SIGTERM)
    run.until(lambda: any(row.get("event") == "left" for row in run.records("0")), "its farewell")
    run.until(lambda: run.rounds("0") >= run.rounds("2") + 5, "rounds without it")
    assert saved(run, "2") >= run.rounds("2")
    run.process.kill()
    psutil.wait_procs(list(peers.values()), timeout=15)
    assert run.end().left == []
    for peer in "013":
        assert saved(run, peer) >= run.rounds(peer) > before


@pytest.mark.skipif(sys.platform != "linux", reason="peers are forked on Linux only")
def test_a_killed_launcher_leaves_no_traceback_in_any_log(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, *NEVER, "--steps", 100_000)
    run.until(lambda: run.rounds() >= 3, "round 3")
    peers = list(run.peers().values())
    (zygote,) = {peer.parent() for peer in peers}
    assert zygote is not None
    run.process.kill()
    psutil.wait_procs([zygote, *peers], timeout=15)
    assert run.end().left == []
    assert [log.read_text() for log in sorted(run.folder.glob("*.log"))] == [""] * 4


def test_a_peer_whose_launcher_is_gone_before_its_orders_says_so_in_a_line() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        done = subprocess.run(
            [sys.executable, "-m", "samovar.peers.launch.process"],
            env={**os.environ, CONTROL_VARIABLE: str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert (done.returncode, done.stderr) == (1, "the launcher of this process is gone\n")


SELF_KILLED = """
import os
import signal
import sys

sys.path.insert(0, {tasks!r})
import steady
from steady import evaluate, loss, optimizer


def die_once(what):
    try:
        os.close(os.open({marks!r} + what, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def model():
    die_once("model")
    return steady.model()


def data(part, parts):
    if part in (0, 2):
        die_once(f"data-{{part}}")
    return steady.data(part, parts)
"""


def test_peers_that_are_killed_before_the_first_round_are_started_anew(tmp_path: Path) -> None:
    """One before it has come up, and then two of four at once, the founder among them, in their first local step."""
    (tmp_path / "task.py").write_text(SELF_KILLED.format(tasks=str(STEADY.parent), marks=f"{tmp_path}/mark-"))
    options = ("--peers", 4, "--period", 8, "--steps", 80, "--patience-s", 0.5, "--run", "run", "--json")
    ended = samovar(tmp_path, "train", "task.py", *options, "--no-report")
    assert (ended.code, ended.left) == (0, []), ended.err
    assert ended.result["rounds"] == 10
    assert "restarted: its process was killed by signal 9" in ended.err


RAISES = """
import sys

sys.path.insert(0, {tasks!r})
import steady
from steady import evaluate, model, optimizer

own, steps = [], []


def data(part, parts):
    own.append(part)
    return steady.data(part, parts)


def loss(model, batch):
    steps.append(1)
    if own == [{whose}] and len(steps) == 20:
        raise KeyError("a label of mine")
    return steady.loss(model, batch)
"""


@pytest.mark.parametrize("whose", [0, soaked(1)])
def test_the_last_line_names_the_place_and_error_of_the_peer_that_raised(whose: int, tmp_path: Path) -> None:
    """Also of the other, which cannot go on alone, and is told of first."""
    (tmp_path / "task.py").write_text(RAISES.format(tasks=str(STEADY.parent), whose=whose))
    options = ("--peers", 2, "--period", 4, "--steps", 40, "--quorum", 2, "--run", "run", "--json")
    ended = samovar(tmp_path, "train", "task.py", *options)
    assert (ended.code, ended.left) == (2, [])
    assert ended.err.splitlines()[-1] == ended.complaint
    cause = f"samovar: peer {whose}: task.py, line 19: KeyError: 'a label of mine'; see run/peer-{whose}.log; "
    assert ended.complaint.startswith(cause)
    assert f"; peer {1 - whose}: 1 of 2 peers are left, 2 are needed to go on; " in ended.complaint
    assert ended.complaint.endswith("; round 4 is saved, go on with: samovar train task.py --resume run")


def test_a_peer_goes_on_after_the_other_raised_and_the_result_has_place_and_error(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(RAISES.format(tasks=str(STEADY.parent), whose=1))
    options = ("--peers", 2, "--period", 4, "--steps", 40, "--run", "run", "--no-report")
    ended = samovar(tmp_path, "train", "task.py", *options)
    assert (ended.code, ended.left) == (0, []), ended.err
    (lost,) = [line for line in ended.out.splitlines() if line.startswith("lost ")]
    why = "task.py, line 19: KeyError: 'a label of mine'; see run/peer-1.log"
    assert re.fullmatch(rf"lost 1 at [^:]+: {re.escape(why)}", lost)


def test_a_removed_folder_does_not_cost_the_result(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, "--steps", 240)
    run.until(lambda: run.rounds() >= 3, "round 3")
    shutil.rmtree(run.folder)
    ended = run.end()
    assert (ended.code, ended.left) == (2, [])
    assert ended.result["rounds"] == 30
    assert ended.result["accuracy"] >= 0.95
    assert [peer["steps"] for peer in ended.result["peers"]] == [240] * 4
    assert "not all of the result could be written" in ended.complaint


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a file system may not be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_no_training_and_is_told(small_disk: Path) -> None:
    ended = samovar(small_disk, *TRAIN, "--steps", 240)
    assert (ended.code, ended.left) == (2, []), ended.err
    assert (ended.result["rounds"], ended.result["lost"]) == (30, [])
    assert ended.result["accuracy"] >= 0.95
    assert "checkpoint failed: cannot save checkpoint" in ended.err
    assert "cannot save checkpoint" in ended.complaint
    assert "no space left on device" in ended.complaint
