"""The parameter server between processes: it learns, is resumed, and loses a server without losing the run."""

import json
import random
import signal
from pathlib import Path

from live import ROOT, Live, python, samovar

from samovar.peers.records.run import read_run

DIGITS, GLOVE = ROOT / "examples/digits.py", ROOT / "examples/glove.py"
OWN = ("--protocol", "parameter-server", "--peers", 3, "--servers", 2, "--ranges", 8)


def test_workers_and_servers_learn_and_the_run_is_resumed_with_more_servers(tmp_path: Path) -> None:
    first = samovar(tmp_path, "train", DIGITS, *OWN, "--run", "run", "--steps", 120, "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["exchanges"] == 120
    again = samovar(tmp_path, "train", DIGITS, "--resume", "run", "--servers", 3, "--steps", 180, "--json")
    assert again.code == 0, again.err
    run = read_run(tmp_path / "run")
    last = {record.peer: record for record in run.exchanges if record.step == 180}
    assert {*last} == {"0", "1", "2"}, "servers take no steps"
    assert min(record.metrics["accuracy"] for record in last.values()) >= 0.85
    assert {record.peer for record in run.exchanges} == {"0", "1", "2", "3", "4", "5"}
    assert "Staleness" in (tmp_path / "run/report.html").read_text("utf-8")


def test_word_vectors_are_trained_with_rows_on_a_server_and_their_neighbours_printed(tmp_path: Path) -> None:
    """A text of pairs of words that stand beside each other alone."""
    chance, text = random.Random(0), tmp_path / "text"
    endings = [first + second for first in "abcdef" for second in "abcdefghij"]
    pairs = [(f"left{ending}", f"right{ending}") for ending in endings]
    text.write_text(" ".join(" ".join(chance.choice(pairs)) for _ in range(4000)), "utf-8")
    own = ("--protocol", "parameter-server", "--peers", 2, "--server-update", "adagrad:0.05", "--run", "run")
    ended = samovar(tmp_path, "train", GLOVE, *own, "--steps", 60, "--json", "--", text)
    assert ended.code == 0, ended.err
    told = [record for record in read_run(tmp_path / "run").exchanges if record.details.get("rows")]
    costs = [record.metrics["cost"] for record in told if record.metrics]
    assert costs[-1] < 0.7 * costs[0]
    assert all(record.details["rows"] <= 240 for record in told)
    printed = python(GLOVE, tmp_path / "run", text)
    assert printed.returncode == 0, printed.stderr
    assert all(len(line.split()) == 21 for line in printed.stdout.splitlines())


def test_a_server_that_is_killed_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    settings = ("--consistency", "async", "--steps", 200, "--patience-s", 2, "--run", "run", "--json", "--no-report")
    run = Live(tmp_path, "train", DIGITS, *OWN, *settings)
    run.until(lambda: any(row.get("step", 0) >= 20 for row in run.records("0")), "the first exchanges")
    run.peers()["3"].send_signal(signal.SIGKILL)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["3"]
    assert ended.result["metrics"]["accuracy"] >= 0.85
