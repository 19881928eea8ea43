"""Gossip between processes: every peer learns, and a run is resumed."""

import json
import signal
from pathlib import Path

import psutil
import pytest
from live import COUNTED, ROOT, STEADY, Live, samovar

from samovar.peers.records.run import read_run
from samovar.protocols.shared_memory.machine import machine


def test_every_peer_of_a_gossip_learns_and_the_run_is_resumed(tmp_path: Path) -> None:
    task, own = ROOT / "examples/digits.py", ("--protocol", "gossip", "--peers", 4, "--run", "run")
    first = samovar(tmp_path, "train", task, *own, "--steps", 320, "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["exchanges"] == 40
    again = samovar(tmp_path, "train", task, "--resume", "run", "--steps", 480, "--json")
    assert again.code == 0, again.err
    run = read_run(tmp_path / "run")
    last = {record.peer: record for record in run.exchanges if record.step == 480}
    assert len(last) == 4
    assert min(record.metrics["accuracy"] for record in last.values()) >= 0.93
    told = json.loads(again.out)
    assert told["metrics"] == last[told["metrics_of"] or "0"].metrics
    seen = [record.metrics["accuracy"] for record in run.exchanges if record.metrics]
    assert told["best"]["value"] == max(seen), "of all peers, whichever was the last to write"
    assert "Neighbours" in (tmp_path / "run/report.html").read_text("utf-8")


def exchanges(run: Live) -> int:
    return max((row["version"] for row in run.records() if row["kind"] == "exchange"), default=0)


def boards(process: psutil.Process) -> set[str]:
    """The memory of peers that a process has mapped."""
    lines = Path(f"/proc/{process.pid}/maps").read_text("ascii").splitlines()
    return {line.split()[4] for line in lines if "/memfd:samovar" in line}


def test_nobody_waits_for_a_killed_peer_and_a_newcomer_takes_its_place(tmp_path: Path) -> None:
    """By its silence they would not know of it in this test's time. Nor does anything of it stay with them."""
    usual = ("--patience-s", 10_000, "--no-report", "--json")
    own = ("--protocol", "gossip", "--peers", 4, "--period", 8, "--steps", 10**6, *usual)
    run = Live(tmp_path, "train", STEADY, *own, "--run", "run")
    run.until(lambda: exchanges(run) >= 10, "exchange 10")
    run.peers()["2"].send_signal(signal.SIGKILL)
    words = (run.folder / "join.txt").read_text("utf-8").split()
    newcomer = Live(tmp_path, "join", words[2], STEADY, "--invite", words[5], *usual, "--run", "new", run="new")
    newcomer.until(lambda: exchanges(newcomer) > 0, "an exchange of the newcomer")
    last = exchanges(run)
    run.until(lambda: exchanges(run) >= last + 10, "ten more exchanges")
    here = [*run.peers().values(), psutil.Process(newcomer.process.pid)]
    assert len(here) == 4
    if machine():
        assert all(1 < len(boards(process)) <= 4 for process in here)
        assert newcomer.records()[-1]["bytes_shared"] > 0
    words = (newcomer.folder / "join.txt").read_text("utf-8").split()
    assert words[2] not in (run.folder / "join.txt").read_text("utf-8"), "through the newcomer itself"
    other = Live(tmp_path, "join", words[2], STEADY, "--invite", words[5], *usual, "--run", "other", run="other")
    other.until(lambda: exchanges(other) > 0, "an exchange of another newcomer")
    for one in (other, newcomer, run):
        one.signal(signal.SIGINT)
        assert one.end().left == []
    lost = {row["about"] for row in run.records() if row["kind"] == "event" and row["event"] == "lost"}
    assert lost == {"2"}


def test_an_edge_peer_shares_no_memory_and_holds_few_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own model and its copy to train, the estimate that its neighbour has of it, and that of its neighbour; of a
    small model also the neighbour's next, which arrives during local steps."""
    monkeypatch.setenv("COUNTED", str(tmp_path))
    usual = ("--patience-s", 10_000, "--no-report", "--json")
    own = ("--protocol", "gossip", "--peers", 1, "--topology", "complete", "--period", 4, "--steps", 10**6, *usual)
    run = Live(tmp_path, "train", COUNTED, *own, "--algorithm", "choco", "--codec", "top_k:0.01", "--run", "run")
    words = run.until(
        lambda: (run.folder / "join.txt").exists() and (run.folder / "join.txt").read_text("utf-8"), "a line"
    ).split()
    edge = Live(
        tmp_path, "join", words[2], COUNTED, "--invite", words[5], "--edge", *usual, "--run", "edge", run="edge"
    )
    edge.until(lambda: exchanges(edge) >= 20, "20 exchanges")
    made = [row for row in edge.records() if row["kind"] == "exchange"]
    assert boards(psutil.Process(edge.process.pid)) == set()
    assert all(row["bytes_shared"] == 0 for row in made)
    assert int((tmp_path / str(edge.process.pid)).read_text("ascii")) <= 5
    for one in (edge, run):
        one.signal(signal.SIGINT)
        assert one.end().left == []
