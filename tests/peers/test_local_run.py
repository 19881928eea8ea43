"""What the user is told of a run on this machine: how others join it, and how its peers ended."""

from __future__ import annotations

import asyncio
import dataclasses
import types
from pathlib import Path
from typing import cast

import pytest
from boards import happened

import samovar
from samovar.peers.api.train import finished
from samovar.peers.checkpoints.checkpoint import CheckpointError
from samovar.peers.errors import RunFailed
from samovar.peers.launch.display import Display
from samovar.peers.launch.launcher import Launch
from samovar.peers.launch.local_run import LocalRun, prepared
from samovar.peers.launch.resuming import wished
from samovar.peers.launch.run_folder import Spent, command_line, keep_settings, make_folder
from samovar.peers.launch.spawned import Spawned
from samovar.peers.launch.spec import checkpoint_path, founding_orders, log_path
from samovar.peers.launch.stop_request import StopRequest
from samovar.peers.launch.ways_in import WaysIn
from samovar.peers.records.records import Record
from samovar.peers.records.result import Result
from samovar.peers.records.tally import Tally
from samovar.peers.run_settings.settings import Settings, silently
from samovar.peers.task.task import TaskError
from samovar.peers.training.stop import Stopped


class Said:
    """A display that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.heard = Tally()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def gathers(self, here: str) -> None:
        pass

    def put(self, record: Record) -> None:
        pass

    def end(self, result: Result) -> str:
        return ""

    def goes_on(self, recorded_s: float, before: object) -> None:
        pass

    def tells(self, why: str) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("left", [True, False])
def test_a_stopped_peer_whose_process_takes_too_long_to_exit_is_lost_only_if_it_had_not_left(
    tmp_path: Path, left: bool
) -> None:
    said, orders = Said(), founding_orders(Path("task.py"), Settings(peers=2), tmp_path)[0]
    peers = [Spawned(one, ended={"finished": False, "metrics": {}}, exit_code=0) for one in orders]
    peers[1].exit_code, peers[1].grace_s, peers[1].ended = -9, 5.0, peers[1].ended if left else None
    run = LocalRun(task=Path("task.py"), script=True, settings=Settings(report=False), folder=tmp_path)
    launch = cast(Launch, types.SimpleNamespace(met=True, peers=peers))
    result = run._conclude(cast(Display, said), launch, 1.0, 0.0, stopped=True).result
    why = "stopped, and killed as it had not ended 5 s later"
    assert result is not None
    assert (result.ended_by, result.ended_why) == (None, "stopped by its user")
    assert [one.why for one in result.lost] == ([] if left else [f"its process was {why}"])
    assert said.lines == ([f"peer 1: {why}"] if left else [])


def test_a_script_that_fails_after_it_has_left_the_run_is_told_and_no_peer_is_lost(tmp_path: Path) -> None:
    said, orders = Said(), founding_orders(Path("task.py"), Settings(peers=2), tmp_path)[0]
    peers = [Spawned(one, ended={"finished": True, "metrics": {}}, exit_code=0) for one in orders]
    log_path(tmp_path, "1").write_text("Traceback\nOSError: no room for net-1.pt\n")
    peers[1].exit_code = 1
    run = LocalRun(task=Path("task.py"), script=True, settings=Settings(report=False), folder=tmp_path)
    launch = cast(Launch, types.SimpleNamespace(met=True, peers=peers))
    ended = run._conclude(cast(Display, said), launch, 1.0, 0.0, stopped=False)
    assert ended.result is not None
    assert (ended.result.ended_by, ended.result.ended_why) == (None, "its scripts have ended")
    assert ended.result.lost == ()
    told = f"exited with 1: OSError: no room for net-1.pt; see {log_path(tmp_path, '1')}"
    assert ended.wrong == f"peer 1 had left the run, and then its script {told}"


def test_how_others_join_is_told_again_after_a_restart_only_if_it_has_changed(tmp_path: Path) -> None:
    async def asks(asked: object) -> dict[str, object]:
        raise AssertionError(asked)

    said, task = Said(), Path("task.py")
    run = LocalRun(task=task, script=False, settings=Settings(), folder=tmp_path)
    ways_in = WaysIn(task, tmp_path, None, asks)
    for port in (41, 41, 42):
        run._met(cast(Display, said), ways_in, [{"id": "a", "address": f"tcp://192.0.2.2:{port}"}])
    assert [line.split()[6] for line in said.lines] == ["tcp://192.0.2.2:41", "tcp://192.0.2.2:42"]


def test_who_joins_a_task_that_is_in_the_runs_folder_is_told_to_copy_it(tmp_path: Path) -> None:
    async def asks(asked: object) -> dict[str, object]:
        raise AssertionError(asked)

    said, task = Said(), tmp_path / "task.py"
    run = LocalRun(task=task, script=False, settings=Settings(), folder=tmp_path)
    for address in ("tcp://192.0.2.2:41", "tcp://127.0.0.1:41"):
        run._met(cast(Display, said), WaysIn(task, tmp_path, None, asks), [{"id": "a", "address": address}])
    assert said.lines[0].startswith(f"join from another machine, after copying {task} there: samovar join ")
    assert said.lines[1].startswith("join from this machine: samovar join ")


@pytest.mark.parametrize("own", ["allreduce", "gossip"])
def test_a_run_is_resumed_with_its_own_protocol(tmp_path: Path, own: str) -> None:
    keep_settings(tmp_path, Settings(protocol=own, peers=2))
    checkpoint_path(tmp_path, "0").parent.mkdir()
    checkpoint_path(tmp_path, "0").touch()
    other = {"allreduce": "parameter-server", "gossip": "allreduce"}[own]
    with pytest.raises(CheckpointError, match=f": its protocol is {own}, and it is resumed with that: leave out --pro"):
        wished({"protocol": other}, None, tmp_path, silently)
    for given in ({}, {"protocol": own}):
        assert wished(given, None, tmp_path, silently).protocol.name == own


def test_a_task_that_is_stopped_before_its_first_checkpoint_says_that_it_cannot_be_resumed(tmp_path: Path) -> None:
    said, stop = Said(), StopRequest()
    stop.set()
    run = LocalRun(task=Path("task.py"), script=False, settings=Settings(report=False), folder=tmp_path)
    ended = asyncio.run(run.train(cast(Display, said), stop, "again"))
    assert said.lines == ["stopped before the first checkpoint: there is nothing to resume"]
    with pytest.raises(Stopped, match=f"^{said.lines[0]}$"):  # from Python
        finished(ended)


@pytest.mark.parametrize("names_the_folder", [False, True])
def test_a_refused_start_leaves_no_folder_unless_its_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names_the_folder: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_folder(None, Path("task.py"))
    why = f"peer 0: data() failed; see {log_path(folder, '0')}" if names_the_folder else "peer 0: no data()"

    async def fails(self: Launch, stop: StopRequest, met: object) -> None:
        log_path(folder, "0").write_text("Traceback")
        (folder / "peer-0.jsonl").touch()
        raise RunFailed(why)

    monkeypatch.setattr(Launch, "run", fails)
    run = LocalRun(task=Path("task.py"), script=False, settings=Settings(report=False), folder=folder)
    assert asyncio.run(run.train(cast(Display, Said()), StopRequest(), "again")).wrong == why
    assert folder.exists() is names_the_folder
    if names_the_folder:
        with pytest.raises(CheckpointError, match="this run failed: peer 0: data\\(\\) failed"):
            samovar.Result.read(folder)


@pytest.mark.parametrize("late", [False, True])
def test_a_run_that_was_over_when_it_was_stopped_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    async def all_done(self: Launch, stop: StopRequest, met: object) -> None:
        for peer in self.peers:
            peer.ended, peer.exit_code = {"finished": True, "metrics": {}}, 0
            peer.grace_s = 5.0 if late else None
        self._met_s = 0.0
        stop.set()

    said = Said()
    monkeypatch.setattr(Launch, "run", all_done)
    run = LocalRun(task=Path("task.py"), script=True, settings=Settings(report=False), folder=tmp_path)
    assert asyncio.run(run.train(cast(Display, said), StopRequest(), "")).stopped is late
    cut = ": only what the script does then was cut off"
    assert said.lines[-1] == f"the run was over before it was stopped{cut if late else ''}"


def test_resuming_a_run_that_is_over_takes_no_time_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def all_done(self: Launch, stop: StopRequest, met: object) -> None:
        for peer in self.peers:
            peer.ended, peer.exit_code = {"finished": True, "metrics": {}}, 0
        self._met_s = 0.0

    monkeypatch.setattr(Launch, "run", all_done)
    monkeypatch.setattr("samovar.peers.launch.local_run.spent", lambda folder: Spent(wall_s=13.25))
    settings = Settings(report=False)
    run = LocalRun(task=Path("task.py"), script=False, settings=settings, folder=tmp_path, resumed_by="again")
    result = asyncio.run(run.train(cast(Display, Said()), StopRequest(), "")).result
    assert result is not None
    assert result.wall_s == 13.25


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["/tmp/vae.py", "--epochs", "4"], "python vae.py --epochs 4"),
        (["/usr/bin/samovar", "train", "t.py", "--run", "mine"], "samovar train t.py"),
        (["/lib/samovar/__main__.py", "train", "t.py", "--", "--run", "x"], "samovar train t.py -- --run x"),
    ],
    ids=" ".join,
)
def test_the_command_of_a_run_can_be_typed_again(given: list[str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", given)
    assert command_line() == told


def test_a_folder_that_holds_a_run_tells_how_it_is_gone_on_with_only_where_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "peer-0.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"holds a run already; choose another --run$"):
        make_folder(str(tmp_path), Path("task.py"))
    with pytest.raises(ValueError, match=r"holds a run already; go on with --resume it$"):
        make_folder(str(tmp_path), Path("task.py"), advice="go on with --resume it")


_WITHOUT = "def model(): ...\ndef data(part, parts): ...\ndef loss(model, batch): ...\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('METRICS = {"right": "higher of 20"}', "METRICS must be a dict of scales by name"),
        ("accumulate = 0", "accumulate must be a whole number of batches, 1 or more, got 0"),
        ("clip = True", "clip must be a norm above 0"),
        ("seed_everything = 3", "seed_everything is not a function seed_everything(seed); a run is seeded by --seed 3"),
    ],
)
def test_a_value_that_a_task_writes_down_wrongly_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text(f"{_WITHOUT}{line}\n", "utf-8")
    with pytest.raises(TaskError) as told:
        prepared(Path("task.py"), (), {}, tell=silently)
    assert str(told.value).startswith(f"task.py: {said}")
    assert [one.name for one in tmp_path.iterdir()] == ["task.py"]


@pytest.mark.parametrize(
    "lines",
    [
        'METRICS = dict(right="higher of 20"[:6])',
        "accumulate = 0\naccumulate = 2",
        "accumulate = 0\nfor accumulate in (1, 2): pass",
        "clip = None",
        "METRICS = {1: 2}\ndel METRICS",
        "def setup():\n    accumulate = 0",
    ],
)
def test_of_what_a_task_computes_nothing_is_refused_by_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text(f"{_WITHOUT}{lines}\n", "utf-8")
    assert prepared(Path("task.py"), (), {}, tell=silently).task == Path("task.py")


_SAVED, _LEFT = "round 7 is saved, go on with: again", "far joined from elsewhere and may train on"
_LINE = "then come back by a line of join.txt in a run folder there"


@pytest.mark.parametrize(
    ("role", "fars", "advice"),
    [
        (None, "", f"{_LEFT}: {_LINE}; if nobody does, {_SAVED}"),
        ("server", "server", f"{_LEFT}: {_LINE}, with serve in place of join; if nobody does, {_SAVED}"),
        ("server", "", _SAVED),
    ],
)
def test_a_run_that_fails_here_says_how_it_comes_back_to_those_that_may_go_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str | None, fars: str, advice: str
) -> None:
    """Workers elsewhere do not go on without any server."""

    async def fails(self: Launch, stop: StopRequest, met: object) -> None:
        raise RunFailed("peer 2: its process was killed by SIGKILL")

    monkeypatch.setattr(Launch, "run", fails)
    said = Said()
    for event in (happened("2", "joined", about="far", about_role=fars), happened("2", "checkpoint", why="exchange 7")):
        said.heard.update(event)
    run = LocalRun(task=Path("task.py"), script=False, settings=Settings(report=False), folder=tmp_path)
    if role:
        monkeypatch.setattr("samovar.peers.launch.local_run.founding_orders", lambda *_, **__: ([], None))
        run = dataclasses.replace(run, role=role)
    wrong = asyncio.run(run.train(cast(Display, said), StopRequest(), "again")).wrong
    assert wrong == f"peer 2: its process was killed by SIGKILL; {advice}"
