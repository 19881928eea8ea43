"""Gossip between processes: every peer learns, and a run is resumed."""

import json
from pathlib import Path

from live import ROOT, samovar

from samovar.peers.records.run import read_run


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
    assert "Neighbours" in (tmp_path / "run/report.html").read_text("utf-8")
