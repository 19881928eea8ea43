"""A run that fails in its processes ends with one clear line; one that meets a bad day goes on."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import psutil
from bad_files import complaint, folder_of_files, nothing_is_left  # noqa: F401
from live import ROOT, STEADY, Ended, Live, run_here, samovar, verb

from samovar.peers.checkpoints.checkpoint import load
from samovar.protocols.addresses import split_address


def failed(ended: Ended) -> str:
    assert (ended.code, ended.out, ended.left) == (2, "", []), ended.err
    return ended.complaint.removeprefix("samovar: ")


def test_a_port_in_use_is_told_with_advice(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        said = f"cannot listen on {listen}: the port is in use; choose another with --listen"
        ended = samovar(folder, "train", "good.py", "--peers", 1, "--listen", listen, "--json")
        assert failed(ended) == f"peer 0: {said}"
        with run_here(folder / "here") as here:
            way = ["join", here["address"], "good.py", "--invite", here["invite"], "--listen", listen]
            assert complaint(verb(*way)) == said


def test_a_task_that_fails_in_the_peers_is_one_line(folder: Path) -> None:
    ended = samovar(folder, "train", "raises.py", "--peers", 2, "--json")
    assert re.fullmatch(r"peer \d: raises\.py, line 6: cannot be imported: ZeroDivisionError: .*", failed(ended))


def test_a_task_that_cannot_judge_its_model_says_so_before_anything_is_trained(folder: Path) -> None:
    ended = samovar(folder, "train", "judges.py", "--peers", 2, "--json")
    assert re.fullmatch(
        r"peer 0: in evaluate\(\): judges\.py, line 6: ZeroDivisionError: division by zero; see runs/\S+/peer-0\.log",
        failed(ended),
    )
    assert not any(file.stat().st_size for file in (folder / "runs/judges-001").glob("peer-*.jsonl")), "no record"


def test_a_task_that_cannot_judge_its_model_later_ends_the_run_and_costs_no_other_peer(folder: Path) -> None:
    """After some rounds, where a peer that fails alone would be done without."""
    ended = samovar(folder, "train", "judges_once.py", *"--peers 2 --period 1 --evaluate-every 5 --json".split())
    assert re.fullmatch(
        r"peer (\d): in evaluate\(\): judges_once\.py, line \d: ZeroDivisionError: division by zero; "
        r"see runs/\S+/peer-\1\.log; "
        r"round \d+ is saved, go on with: samovar train judges_once\.py --resume runs/judges_once-001",
        failed(ended),
    )
    assert (folder / "runs/judges_once-001/checkpoint/peer-1.safetensors").exists(), "it stopped in good order"


def test_the_prints_of_a_task_are_no_part_of_the_json(folder: Path) -> None:
    told = verb("simulate", "talks.py", "--peers", 2, "--steps", 20, "--period", 10, "--json")
    assert json.loads(told.stdout)["accuracy"] == 0.5
    assert "begun\n" in told.stderr
    assert "judging\n" in told.stderr


def test_a_loss_that_becomes_nan_ends_the_run(folder: Path) -> None:
    ended = samovar(folder, "train", "diverges.py", "--peers", 2, "--period", 3, "--json")
    assert re.fullmatch(
        r"peer \d: the loss of the first batch is not finite: look into data\(\), model\(\) and loss\(\)",
        failed(ended),
    )


def test_on_a_full_disk_the_run_goes_on_and_the_checkpoint_before_still_loads(tmp_path: Path) -> None:
    task = ROOT / "tests/support/tasks/large.py"
    run = Live(tmp_path, "train", task, *"--peers 1 --period 4 --steps 100000 --checkpoint-every-s 0".split(),
               *"--run run --no-report --json".split())  # fmt: skip
    file = tmp_path / "run/checkpoint/peer-0.safetensors"
    run.until(file.exists, "a checkpoint")
    # A file that may not grow beyond this is what a full disk is for a checkpoint, but not for the records.
    run.peers()["0"].rlimit(psutil.RLIMIT_FSIZE, (300_000, 300_000))
    records = tmp_path / "run/peer-0.jsonl"
    run.until(lambda: "checkpoint_failed" in records.read_text(), "a checkpoint that fails")
    rounds = records.read_text().count('"round":')
    run.until(lambda: records.read_text().count('"round":') > rounds, "another round")
    run.process.send_signal(signal.SIGINT)
    assert "file too large; the previous checkpoint is untouched" in records.read_text()
    first = run.end()
    assert list(file.parent.iterdir()) == [file]
    step = load(file).numbers["state"]["step"]
    resumed = samovar(tmp_path, "train", task, "--resume", "run", "--steps", step + 8, "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.result["rounds"] >= (step + 8) / 4
    assert resumed.result["wall_s"] > first.result["wall_s"], "its time is that of both sessions"


def test_500_silent_connections_do_not_stop_a_run(tmp_path: Path) -> None:
    run = Live(tmp_path, "train", STEADY, *"--peers 2 --period 8 --steps 100000 --run run --no-report --json".split())
    assert run.process.stderr is not None
    way = re.search(r"(tcp://\S+) \S+ (--invite) (\S+)", run.process.stderr.readline())
    assert way is not None
    run.until(lambda: run.rounds() >= 3, "round 3")
    silent = [socket.create_connection(split_address(way[1])) for _ in range(500)]
    try:
        passed = run.rounds()
        run.until(lambda: run.rounds() >= passed + 10, "10 rounds beside them")
        assert verb("doctor", *way.groups()).exit_code == 0, "a command that has something to say is still heard"
        run.signal(signal.SIGINT)
        ended = run.end()
    finally:
        for connection in silent:
            connection.close()
    assert (ended.code, ended.left) == (130, []), ended.err
    assert ended.result["lost"] == []
    assert {row["members"] for row in run.records() if row["kind"] == "round"} == {2}
