"""The parameter server between processes: it learns, is resumed, and loses a server without losing the run."""

import json
import random
import re
import signal
from pathlib import Path

import psutil
import pytest
import torch
from live import ROOT, STEADY, Live, python, samovar, verb
from tiers import soaked
from whole_numbers import SUMS, due

from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.records.run import read_run
from samovar.protocols.shared_memory.segment import machine

DIGITS, GLOVE = ROOT / "examples/digits.py", ROOT / "examples/glove.py"
OWN = ("--protocol", "parameter-server", "--peers", 3, "--servers", 2, "--ranges", 8)


def way_into(run: Live) -> list[str]:
    """The words of a run's join line, without the command."""
    file = run.folder / "join.txt"
    lines = run.until(lambda: file.exists() and file.read_text("utf-8").splitlines(), "the join line")
    return str(lines[0]).split()[2:]


def test_workers_and_servers_learn_and_the_run_is_resumed_with_more_servers(tmp_path: Path) -> None:
    first = samovar(tmp_path, "train", DIGITS, *OWN, "--run", "run", "--steps", 120, "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["exchanges"] == 120
    again = samovar(tmp_path, "train", DIGITS, "--resume", "run", "--servers", 3, "--steps", 180, "--json")
    assert again.code == 0, again.err
    run = read_run(tmp_path / "run")
    entries = [event for event in run.events if event.event in ("started", "resumed")]
    assert len(entries) == 11
    assert all(event.clock_s is not None for event in entries)
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


def test_servers_wait_for_workers_from_elsewhere_and_one_more_server_joins_while_they_train(tmp_path: Path) -> None:
    quiet, own = ("--no-report", "--json"), ("--servers", 1, "--ranges", 8, "--peers", 1, "--steps", 10**6)
    first = Live(tmp_path, "serve", STEADY, *own, "--listen", "tcp://127.0.0.1:0", "--run", "run", *quiet)
    way = way_into(first)
    worker = Live(tmp_path, "join", *way, "--name", "w", "--run", "worker", *quiet, run="worker")
    worker.until(lambda: any(row.get("step", 0) >= 20 for row in worker.records()), "the first exchanges")
    more = Live(tmp_path, "serve", *way, "--name", "more", "--run", "more", *quiet, run="more")
    more.until(lambda: any(row["kind"] != "event" for row in more.records()), "its first updates")
    worker.signal(signal.SIGINT)
    ended_worker = worker.end()
    assert ended_worker.code == 130
    assert [one["peer"] for one in ended_worker.result["elsewhere"]] == ["1", "more"], "it found one, and saw one join"
    for server in (first, more):
        ended = server.end()
        assert "w" in [one["peer"] for one in ended.result["elsewhere"]], "a worker that was there before"
        assert ended.code == 0, ended.err
        assert all(peer["role"] == "server" for peer in ended.result["peers"])
        assert max(row.get("updates", 0) for row in server.records()) > 0


def test_a_worker_is_told_at_once_what_a_stopped_server_has_saved_and_ends(tmp_path: Path) -> None:
    usual = ("--patience-s", 10_000, "--no-report", "--json")
    own = ("--servers", 1, "--peers", 1, "--steps", 10**6, "--listen", "tcp://127.0.0.1:0", "--run", "run")
    server = Live(tmp_path, "serve", STEADY, *own, *usual)
    worker = Live(tmp_path, "join", *way_into(server), "--run", "worker", *usual, run="worker")
    worker.until(lambda: any(row.get("step", 0) >= 20 for row in worker.records()), "the first exchanges")
    server.signal(signal.SIGINT)
    assert server.end().code == 130
    ended = worker.end()
    assert ended.code == 2
    said = re.search(r"and the last left: stopped by its user; exchange (\d+) is saved: resume the run", ended.err)
    assert said, ended.err
    saved = load(tmp_path / "run/checkpoint/peer-1.safetensors").numbers
    assert 20 <= int(said[1]) <= saved["parameter_server_reached"]


QUIET = ("--run", "run", "--json", "--no-report", "--patience-s", 2)


@pytest.mark.parametrize("consistency", ["bsp", soaked("async")])
def test_kill_9_of_a_worker_stalls_nobody_and_the_result_names_it(consistency: str, tmp_path: Path) -> None:
    own = ("--protocol", "parameter-server", "--consistency", consistency, "--peers", 3, "--steps", 200)
    run = Live(tmp_path, "train", STEADY, *own, *QUIET)
    run.until(lambda: any(row.get("step", 0) > 40 for row in run.records("0")), "step 40")
    run.peers()["1"].send_signal(signal.SIGKILL)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["1"]
    assert {peer["peer"] for peer in ended.result["peers"] if peer["steps"] == 200} == {"0", "2"}
    assert torch.equal(*(model_of(tmp_path, worker) for worker in (0, 2)))


def test_hogwild_processes_step_in_one_memory_and_a_killed_one_takes_nothing_from_it(tmp_path: Path) -> None:
    """The worker that made the memory is killed, and the run goes on from the checkpoints of the others afterwards."""
    own = ("--protocol", "parameter-server", "--algorithm", "hogwild:free:4", "--peers", 3)
    run = Live(tmp_path, "train", STEADY, *own, "--steps", 400, *QUIET)
    run.until(lambda: any(row.get("step", 0) > 40 for row in run.records("1")), "step 40")
    run.peers()["0"].send_signal(signal.SIGKILL)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["0"]
    assert {peer["peer"] for peer in ended.result["peers"] if peer["steps"] == 400} == {"1", "2"}
    assert torch.equal(*(model_of(tmp_path, worker) for worker in (1, 2)))
    again = samovar(tmp_path, "train", STEADY, "--resume", "run", "--steps", 440, "--json", "--no-report")
    assert again.code == 0, again.err
    told = [row["step"] for row in run.records("0") if row.get("step", 0) > 400]
    assert told == list(range(404, 441, 4)), "it goes on from where the others were"
    assert again.result["metrics"]["accuracy"] >= 0.9


def test_locked_hogwild_processes_lose_no_step(tmp_path: Path) -> None:
    """Each step adds whole numbers, so that a lost one shows in the sum."""
    own = ("--protocol", "parameter-server", "--algorithm", "hogwild:locked:4", "--peers", 2, "--steps", 400)
    ended = samovar(tmp_path, "train", SUMS, *own, *QUIET)
    assert ended.code == 0, ended.err
    assert model_of(tmp_path, 0).tolist() == model_of(tmp_path, 1).tolist() == due(2, 400).tolist()


def model_of(folder: Path, worker: int) -> torch.Tensor:
    return load(folder / f"run/checkpoint/peer-{worker}.safetensors").tensors["parameter_server/model"]


SCRIPT = """
import samovar, torch
from torch import nn
run = samovar.join()
model = nn.Linear(3, 1)
optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
print("trains")
inputs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
for _ in range(60):
    optimizer.zero_grad()
    loss = (model(inputs).squeeze(1) - inputs.sum(1)).square().mean()
    loss.backward()
    run.loss(loss)
    optimizer.step()
print("trained by", run.peers)
run.leave()
print("first weights", *(round(float(one)) for one in model.weight[0]))
"""


def test_a_script_trains_with_servers_which_run_it_as_far_as_its_model(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    own = ("--servers", 2, "--peers", 2, "--listen", "tcp://127.0.0.1:0", "--no-report", "--server-update", "sgd:0.1")
    servers = Live(tmp_path, "serve", "script.py", *own, "--run", "run", "--json")
    way = way_into(servers)
    workers = [Live(tmp_path, "join", *way, "--run", name, run=name) for name in ("one", "two")]
    for worker in workers:
        ended = worker.end()
        assert ended.code == 0, ended.err
        assert "first weights 1 1 1" in ended.out
        assert "trained by 2" in ended.out, "servers train nothing"
        told = [row for row in worker.records() if row["kind"] == "exchange"]
        assert [row["step"] for row in told] == list(range(1, 61)), "one for each step, and none after the last"
    ended = servers.end()
    assert ended.code == 0, ended.err
    assert [peer["role"] for peer in ended.result["peers"]] == ["server"] * 2
    assert not any("trains" in log.read_text() for log in servers.folder.glob("peer-*.log"))


def test_one_more_server_joins_the_run_of_a_script_while_it_trains(tmp_path: Path) -> None:
    slowly = 'while not time.sleep(0.003) and not os.path.exists("over"):'
    endless = SCRIPT.replace("for _ in range(60):", slowly).replace("import samovar,", "import os, time, samovar,")
    (tmp_path / "script.py").write_text(endless)
    own = ("--servers", 1, "--peers", 1, "--listen", "tcp://127.0.0.1:0", "--no-report", "--server-update", "sgd:0.1")
    first = Live(tmp_path, "serve", "script.py", *own, "--run", "run", "--json")
    way = way_into(first)
    worker = Live(tmp_path, "join", *way, "--run", "worker", run="worker")
    worker.until(lambda: any(row.get("step", 0) >= 20 for row in worker.records()), "the first exchanges")
    more = Live(tmp_path, "serve", *way, "--name", "more", "--run", "more", run="more")
    more.until(lambda: any(row.get("ranges", 0) > 0 for row in more.records()), "its first updates")
    (tmp_path / "over").touch()
    ended = worker.end()
    assert ended.code == 0, ended.err
    assert "first weights 1 1 1" in ended.out
    for server in (first, more):
        ended = server.end()
        assert ended.code == 0, ended.err
        assert "trains" not in ended.out


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (("--algorithm", "sandblaster"), "--algorithm sandblaster maps the rows of a task's data()"),
        (("--server-update", "signed"), "--server-update signed is no server function of the library"),
    ],
)
def test_what_only_a_task_has_is_refused_to_a_script(own: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = verb("train", tmp_path / "script.py", "--protocol", "parameter-server", *own)
    assert ended.exit_code == 2
    assert said in ended.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((DIGITS, "--protocol", "gossip"), "--protocol gossip has no servers"),
        ((DIGITS, "--invite", "x"), "--invite is for one more server: give the run's ADDRESS too"),
        (("tcp://127.0.0.1:1",), "missing argument TASK"),
        (("tcp://127.0.0.1:1", DIGITS, "--invite", "x", "--servers", 2), "--servers is the run's: leave it out"),
        (("tcp://127.0.0.1:1", DIGITS, "--invite", "x", "--resume", "run"), "--resume is for a run that begins here"),
        ((DIGITS, "word"), "a task's own arguments go after --: word"),
    ],
)
def test_what_does_not_go_with_serve_is_told_in_one_line(given: tuple[object, ...], said: str) -> None:
    ended = verb("serve", *given)
    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
    assert said in ended.stderr


WIDE = """
import torch
from torch import nn


def model():
    return nn.Linear(128, 128)


def data(part, parts):
    while True:
        yield torch.randn(8, 128)


def loss(model, batch):
    return model(batch).square().mean()
"""


def boards(process: psutil.Process) -> set[str]:
    """The memory of peers that a process has mapped."""
    lines = Path(f"/proc/{process.pid}/maps").read_text("ascii").splitlines()
    return {line.split()[4] for line in lines if "/memfd:samovar" in line}


@pytest.mark.skipif(not machine(), reason="this machine has no memory to share: not Linux on x86-64")
@pytest.mark.parametrize("victim", [soaked("1"), "2"])
def test_workers_and_servers_on_one_machine_share_memory_and_keep_none_of_a_killed_one(
    victim: str, tmp_path: Path
) -> None:
    """The killed one is a worker, or a server of which the values have another copy."""
    (tmp_path / "wide.py").write_text(WIDE, "utf-8")
    own = ("--protocol", "parameter-server", "--peers", 2, "--servers", 2, "--copies", 2, "--consistency", "async")
    usual = ("--steps", 10**6, "--patience-s", 10_000, "--no-report", "--json")
    run = Live(tmp_path, "train", tmp_path / "wide.py", *own, *usual, "--run", "run")

    def shared(peer: str) -> int:
        return sum(row.get("bytes_shared", 0) for row in run.records(peer))

    def step() -> int:
        return max((row.get("step", 0) for row in run.records("0")), default=0)

    run.until(lambda: all(shared(peer) > 0 for peer in ("0", "1")), "shared memory")
    run.peers()[victim].send_signal(signal.SIGKILL)
    last = step()
    run.until(lambda: step() >= last + 20, "twenty more steps")
    left = run.peers()
    assert len(left) == 3
    assert all(len(boards(process)) <= 3 for process in left.values()), "its own, and those of two others"
    before = shared("0")
    run.until(lambda: shared("0") > before, "more of it")
    run.signal(signal.SIGINT)
    assert run.end().left == []
