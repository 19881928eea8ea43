"""A peer that joined has a run folder of its own, from which others find the run, and in which the peer goes on."""

from __future__ import annotations

import signal
from pathlib import Path

from live import STEADY, Live, verb

import samovar

HERE = ("--listen", "tcp://127.0.0.1:0", "--patience-s", 3, "--no-report", "--json")
GOSSIP = ("--protocol", "gossip", "--peers", 1, "--period", 8, "--steps", 10**6)


def joined(folder: Path, line: str, name: str, *more: object) -> Live:
    return Live(folder, *line.split()[1:], "--name", name, "--run", name, *HERE, *more, run=name)


def exchanges(run: Live) -> int:
    return sum(row["kind"] == "exchange" for row in run.records())


def test_a_joined_peers_folder_tells_the_way_in_and_the_peer_goes_on_there_with_one_clock(tmp_path: Path) -> None:
    assert verb("keys", tmp_path / "me").exit_code == 0
    run, own = Live(tmp_path, "train", STEADY, *GOSSIP, *HERE, "--run", "run"), ("--key", tmp_path / "me.key")
    founders = run.until(lambda: (run.folder / "control.sock").exists() and verb("invite", run.folder).stdout, "a line")
    one = joined(tmp_path, founders, "one", *own)
    one.until(lambda: exchanges(one) >= 5, "exchange 5")
    way = verb("invite", one.folder).stdout
    assert way.split()[2] != founders.split()[2], "through itself"
    assert (one.folder / "join.txt").read_text("utf-8").splitlines()[0] == way.strip()
    assert (one.folder / "join.txt").stat().st_mode & 0o777 == 0o600
    one.signal(signal.SIGKILL)
    one.end()
    before = exchanges(one)
    again = joined(tmp_path, founders, "one", *own)
    again.until(lambda: exchanges(again) >= before + 5, "five more")
    two = joined(tmp_path, verb("invite", run.folder).stdout, "two")
    two.until(lambda: exchanges(two) >= 1, "an exchange of one that joined later")
    way = (two.folder / "join.txt").read_text("utf-8").split()[2]
    again.until(
        lambda: way in (again.folder / "join.txt").read_text("utf-8"), "a line through it in a folder of before"
    )
    new = verb("invite", again.folder, "--new").stdout
    assert new.split()[3:] != verb("invite", again.folder, "--new").stdout.split()[3:]
    assert "make one with samovar invite" in verb("invite", run.folder).stderr, "the founder knows none of them"
    for ended in (two, again, run):
        ended.signal(signal.SIGINT)
        assert ended.end().left == []
    assert "no run goes on there" in verb("invite", again.folder).stderr
    times = [row["time_s"] for row in again.records() if "time_s" in row]
    assert times == sorted(times)
    result = samovar.Result.read(again.folder)
    assert result.wall_s > max(times)
    assert [(one.peer, one.back) for one in result.lost] == [("one", True)], "of its own kill"
