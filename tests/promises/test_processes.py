"""Real processes on real sockets: what simulation cannot see."""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

import psutil
import pytest
import torch
from live import STEADY, Live, samovar, stop_all
from tiers import one_in, soak

from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.launch import launcher
from samovar.peers.records.run import read_run

TRAIN = ("train", STEADY, "--peers", 4, "--period", 8, "--run", "run", "--json", "--no-report")


@pytest.mark.parametrize("seed", one_in(2, range(2)))
def test_a_killed_peer_is_named_and_the_others_finish(tmp_path: Path, seed: int) -> None:
    """At once, as who has spawned it sees it: by its silence they would not know of it in this test's time."""
    chance = random.Random(seed)
    run = Live(tmp_path, *TRAIN, "--steps", 240, "--patience-s", 10_000)
    moment, victim = chance.randrange(1, 15), str(chance.randrange(4))
    run.until(lambda: run.rounds() >= moment, f"round {moment}")
    run.peers()[victim].send_signal(signal.SIGKILL)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == [victim]
    events = [row for row in run.records() if row["kind"] == "event"]
    assert any(row["event"] == "lost" and row["why"] == "its process was killed by signal 9" for row in events)
    assert ended.result["accuracy"] >= 0.95
    last = [row for row in run.records() if row["kind"] == "round" and row["step"] == 240]
    assert {row["peer"] for row in last} == set("0123") - {victim}
    assert {row["members"] for row in last} == {3}
    assert ended.left == []


def test_a_paused_peer_comes_back_by_catching_up(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, "--steps", 640, "--patience-s", 1)
    run.until(lambda: run.rounds() >= 5, "round 5")
    sleeper = run.peers()["2"]
    sleeper.send_signal(signal.SIGSTOP)
    run.until(lambda: any(r["kind"] == "event" and r["event"] == "lost" for r in run.records()), "the loss")
    passed = run.rounds()
    run.until(lambda: run.rounds() >= passed + 5, "rounds without it")
    sleeper.send_signal(signal.SIGCONT)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert "2" in [lost["peer"] for lost in ended.result["lost"]]
    mine = [row for row in run.records("2") if row["kind"] == "round"]
    assert any(row["caught_up"] for row in mine)
    assert mine[-1]["members"] == 4
    finals = [load(tmp_path / f"run/checkpoint/peer-{name}.safetensors").tensors["state/vector"] for name in "0123"]
    assert all(torch.equal(finals[0], final) for final in finals)


STANDS_STILL = """
import os, signal, sys

sys.path.insert(0, {tasks!r})
from steady import data as batches, evaluate, loss as usual, model, optimizer

mine, steps = None, 0


def data(part, parts):
    global mine
    mine = part
    return batches(part, parts)


def loss(model, batch):
    global steps
    steps += 1
    if (mine, steps) == (2, 41):
        os.kill(os.getpid(), signal.SIGSTOP)
    return usual(model, batch)
"""


def test_a_suspended_peer_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE_S", 1.0)  # in which such a peer may end by itself
    (tmp_path / "stands_still.py").write_text(STANDS_STILL.format(tasks=str(STEADY.parent)))
    options = ("--peers", 4, "--period", 8, "--steps", 96, "--patience-s", 1, "--json", "--no-report")
    ended = samovar(tmp_path, "train", "stands_still.py", *options)
    assert ended.code == 0, ended.err
    assert "2" in [lost["peer"] for lost in ended.result["lost"]]
    assert ended.left == []


def test_a_fifth_peer_joins_in_the_middle_by_any_of_the_peers(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, "--steps", 100_000)
    run.until(lambda: run.rounds() >= 5, "round 5")
    assert run.process.stderr is not None
    line = run.process.stderr.readline()
    file = tmp_path / "run/join.txt"
    printed, *_, last = file.read_text().splitlines()
    assert line.endswith(f" machine: {printed}\n")
    assert file.stat().st_mode & 0o777 == 0o600
    words = re.fullmatch(r"samovar (join \S+ \S+ --invite \S+)", last)
    assert words is not None, last
    fifth = Live(tmp_path, *words[1].split(), "--json", "--run", "fifth", "--name", "fifth", run="fifth")
    taken_part = {"kind": "round", "members": 5, "caught_up": False}.items()
    fifth.until(lambda: any(taken_part <= row.items() for row in fifth.records("fifth")), "a round with the newcomer")
    rounds = [row for row in fifth.records("fifth") if row["kind"] == "round"]
    assert rounds[0]["round"] >= 5
    assert {row["members"] for row in rounds if not row["caught_up"]} == {5}
    run.until(lambda: any(taken_part <= row.items() for row in run.records("0")), "the same in the records of another")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert (ended.code, ended.result["lost"]) == (130, []), ended.err
    fifth.until(lambda: any(row.get("event") == "alone" for row in fifth.records("fifth")), "to be alone")
    fifth.signal(signal.SIGINT)
    joined = fifth.end()
    assert (joined.code, joined.left) == (130, []), joined.err
    assert {one["peer"]: one["gone"] for one in joined.result["elsewhere"]} == dict.fromkeys("0123", "left")
    assert all(one["rounds"] > 0 for one in joined.result["elsewhere"])


WAN = """
[[groups]]
peers = 2
link = "9mbit,20ms"

[[groups]]
peers = 1
link = "50mbit/20mbit,5ms"
"""


def test_a_run_on_shaped_links_finishes_and_tells_the_link_of_each_peer(tmp_path: Path) -> None:
    (tmp_path / "wan.toml").write_text(WAN)
    options = ("--config", "wan.toml", "--period", 8, "--steps", 40, "--run", "run", "--json", "--no-report")
    ended = samovar(tmp_path, "train", STEADY, *options)
    assert (ended.code, ended.result["lost"], ended.left) == (0, [], []), ended.err
    assert [peer["rounds"] for peer in ended.result["peers"]] == [5] * 3
    run = read_run(tmp_path / "run")
    told = {event.peer: event.why for event in run.events if event.event == "started"}
    links = {"0": "9mbit,20ms", "1": "9mbit,20ms", "2": "50mbit/20mbit,5ms"}
    assert told == {peer: f"its connection is shaped to {link}" for peer, link in links.items()}
    # Nobody's own part can come back sooner than that.
    assert all(record.wait_s + record.transfer_s > 0.04 for record in run.exchanges)


SLOWED = """
import gc

import torch
from torch import nn

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.shaping.down_link import DownLink
from samovar.protocols.shaping.shaped_transport import Shaped

mine, steps = None, 0


def model():
    return nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 10))


def data(part, parts):
    global mine
    mine = part
    while True:
        yield torch.randn(4, 64)


def loss(model, batch):
    global steps
    steps += 1
    if (mine, steps) == (2, 21):
        slow = parse_link("0.2mbit,5ms")
        (transport,) = [one for one in gc.get_objects() if isinstance(one, Shaped)]
        transport._link, transport._down_link = slow, DownLink(slow.receives_Bps)
    return model(batch).square().mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01)
"""


@soak
def test_a_peer_on_a_link_50_times_slower_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """`test_lateness` simulates it."""
    (tmp_path / "slowed.py").write_text(SLOWED)
    options = ("--link", "10mbit,5ms", "--schedule", "ring", "--period", 4, "--steps", 100_000, "--patience-s", 6)
    run = Live(tmp_path, "train", "slowed.py", "--peers", 4, *options, "--run", "run", "--json", "--no-report")

    def late() -> dict[str, str]:
        lost = [row for row in run.records("0") if row["kind"] == "event" and row["event"] == "lost"]
        return {row["about"]: row["why"] for row in lost if "is late" in row["why"]}

    run.until(late, "a late part")
    passed = run.rounds("0")
    run.until(lambda: run.rounds("0") >= passed + 10, "rounds without it")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert (ended.code, ended.left) == (130, []), ended.err
    assert list(late()) == ["2"]
    assert re.search(r"its contribution to round \d+ is late: .* foreseen.*its connection carries .* kB/s", late()["2"])


@pytest.mark.parametrize("moment", ["at start", "in a round"])
def test_ctrl_c_leaves_a_checkpoint_and_no_orphan(tmp_path: Path, moment: str) -> None:
    run = Live(tmp_path, *TRAIN, "--steps", 100_000)
    if moment == "in a round":
        run.until(lambda: run.rounds() >= 3, "round 3")
    else:
        run.until(lambda: len(run.peers()) == 4, "four processes")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert ended.code == 130, ended.err
    assert ended.left == []
    if moment == "in a round":
        assert len(list((tmp_path / "run/checkpoint").glob("*.safetensors"))) == 4


def test_a_killed_launcher_leaves_no_orphan(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, "--steps", 100_000)
    run.until(lambda: run.rounds() >= 3, "round 3")
    children = list(run.peers().values())
    run.process.kill()
    _, alive = psutil.wait_procs(children, timeout=15)
    run.end()
    assert alive == []


def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    straight = samovar(tmp_path, *TRAIN, "--steps", 160, "--run", "straight")
    run = Live(tmp_path, *TRAIN, "--steps", 160)
    run.until(lambda: run.rounds() >= 6, "round 6")
    run.signal(signal.SIGINT)
    assert run.end().code == 130
    assert run.rounds() < 20
    refused = samovar(tmp_path, "train", STEADY, "--resume", "run", "--json", "--outer", "nesterov")
    assert refused.code == 2
    assert "this run began with another outer step than nesterov" in refused.complaint
    resumed = samovar(tmp_path, "train", STEADY, "--resume", "run", "--json")  # as it was, whatever was refused
    assert straight.code == resumed.code == 0, resumed.err
    for name in "0123":
        one, two = (load(tmp_path / run / f"checkpoint/peer-{name}.safetensors") for run in ("straight", "run"))
        # Costs of links are measured: a peer that fetched the last round from another when it was resumed knows one.
        assert {**one.numbers["state"], "links": None} == {**two.numbers["state"], "links": None}
        assert torch.equal(one.tensors["state/vector"], two.tensors["state/vector"])
    assert resumed.result["accuracy"] == straight.result["accuracy"]
    again = samovar(tmp_path, "train", STEADY, "--resume", "run", "--json")
    assert (again.code, again.result["rounds"]) == (0, 20)
    assert "all 160 steps were taken before; for more give --steps" in again.err


def test_a_resumed_run_keeps_the_residual_of_its_codec(tmp_path: Path) -> None:
    coded = ("--codec", "top_k:0.05", "--no-report", "--json")
    train = ("train", STEADY, "--peers", 4, "--period", 8, *coded)
    straight = samovar(tmp_path, *train, "--steps", 64, "--run", "straight")
    begun = samovar(tmp_path, *train, "--steps", 32, "--run", "run")
    resumed = samovar(tmp_path, "train", STEADY, "--resume", "run", "--steps", 64, "--json")
    assert straight.code == begun.code == resumed.code == 0, resumed.err
    for name in "0123":
        one, two = (load(tmp_path / run / f"checkpoint/peer-{name}.safetensors") for run in ("straight", "run"))
        assert torch.equal(one.tensors["state/vector"], two.tensors["state/vector"])
        assert torch.equal(one.tensors["residual"], two.tensors["residual"])


WATCHED = """
import sys
import threading

import torch

sys.path.insert(0, {examples!r})
from digits import data, evaluate, loss, model, optimizer
from samovar.aggregation.codecs.int8 import Int8

encode = Int8.encode


def watched(*arguments):
    with open({told!r}, "a") as file:
        file.write(f"{{threading.current_thread().name}} {{torch.get_num_threads()}},")
    return encode(*arguments)


Int8.encode = watched
"""


def test_encoding_beside_training_takes_no_more_threads_than_training(tmp_path: Path) -> None:
    """Each thread has a number of its own; the default is all cores, and with that peers hold each other up."""
    task, told, more = tmp_path / "watched.py", tmp_path / "told", (os.cpu_count() or 1) + 1
    task.write_text(WATCHED.format(examples=str(STEADY.parents[3] / "examples"), told=str(told)))
    options = ("--period", 4, "--steps", 8, "--codec", "int8", "--threads", more, "--no-report")
    ended = samovar(tmp_path, "train", task, "--peers", 2, *options)
    assert ended.code == 0, ended.err
    assert set(told.read_text().split(",")) == {f"MainThread {more}", ""}


def test_a_test_that_fails_leaves_no_run_behind(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, "--steps", 100_000)
    run.until(lambda: run.rounds() > 0, "a round")
    peers = list(run.peers().values())
    assert len(peers) == 4
    stop_all()
    assert run.process.poll() is not None
    assert not [peer for peer in peers if peer.is_running() and peer.status() != psutil.STATUS_ZOMBIE]
