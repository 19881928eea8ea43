"""The parameter server between processes: it learns, is resumed, and loses a server without losing the run."""

import json
import signal
from pathlib import Path

from live import ROOT, Live, samovar

from samovar.peers.records.run import read_run

DIGITS = ROOT / "examples/digits.py"
OWN = ("--protocol", "parameter-server", "--peers", 3, "--servers", 2)


def test_workers_and_servers_learn_and_the_run_is_resumed(tmp_path: Path) -> None:
    first = samovar(tmp_path, "train", DIGITS, *OWN, "--run", "run", "--steps", 120, "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["exchanges"] == 120
    again = samovar(tmp_path, "train", DIGITS, "--resume", "run", "--steps", 180, "--json")
    assert again.code == 0, again.err
    run = read_run(tmp_path / "run")
    last = {record.peer: record for record in run.exchanges if record.step == 180}
    assert {*last} == {"0", "1", "2"}, "servers take no steps"
    assert min(record.metrics["accuracy"] for record in last.values()) >= 0.85
    assert {record.peer for record in run.exchanges} == {"0", "1", "2", "3", "4"}
    assert "Staleness" in (tmp_path / "run/report.html").read_text("utf-8")


def test_a_server_that_is_killed_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    settings = ("--consistency", "async", "--steps", 200, "--patience-s", 2, "--run", "run", "--json", "--no-report")
    run = Live(tmp_path, "train", DIGITS, *OWN, *settings)
    run.until(lambda: any(row.get("step", 0) >= 20 for row in run.records("0")), "the first exchanges")
    run.peers()["3"].send_signal(signal.SIGKILL)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["3"]
    assert ended.result["metrics"]["accuracy"] >= 0.85
