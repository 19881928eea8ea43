"""The launcher with peers that are no more than their control line: who is started anew, and what ends the run."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samovar.peers.errors import RunFailed
from samovar.peers.launch.launcher import Launch
from samovar.peers.launch.spec import founding_orders
from samovar.peers.launch.stop_request import QUIET_S, StopRequest
from samovar.peers.records.records import EventRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.peers.task.task import TaskError

PEER = """
import glob, json, os, shutil, signal, socket, sys, time

line = socket.socket(fileno=int(os.environ["SAMOVAR_CONTROL"])).makefile("rwb", 0)
def hear():
    return next(iter(json.loads(line.readline()).items()))
def until(wanted):
    while (heard := hear())[0] != wanted:
        pass
    return heard[1]
def tell(kind, content=None):
    line.write(json.dumps({kind: content}).encode() + b"\\n")
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def touch(what):
    open(orders["folder"] + "/" + what, "w").close()
def await_files(what, count):
    while len(glob.glob(orders["folder"] + "/" + what)) < count:
        time.sleep(0.01)

orders = until("orders")
name, restarted = orders["name"], orders["restarted"]
def ready():
    tell("ready", {"id": name, "address": "a"})
def contact():
    who = None if orders["founder"] else until("contact")
    return who and who["id"]
def through(member):
    event = {"kind": "event", "peer": name, "time_s": 0.0, "event": "started", "why": f"through {member}"}
    tell("record", json.dumps(event))
def exchanged():
    numbers = dict.fromkeys(("step", "time_s", "compute_s", "wait_s", "transfer_s", "bytes_sent", "bytes_received",
        "steps_per_s", "loss", "members"), 1)
    tell("record", json.dumps({"kind": "exchange", "peer": name, "version": 1, "details": [], **numbers}))
def done():
    exchanged()
    tell("ended", {"finished": True, "metrics": {}})
    sys.exit()
"""


class Fakes:
    """A run of three peers that do as `script` says. `told`: their records; `met`: how often all had come up."""

    def __init__(self, folder: Path, script: str, *, ends_together: bool = True) -> None:
        settings = Settings(peers=3, patience_s=1.0)
        orders, _ = founding_orders(Path("task.py"), settings, folder)
        self.told: list[Record] = []
        self.met = 0
        self.gathered: list[int] = []
        self.launch = Launch(
            orders,
            settings,
            [sys.executable, "-c", PEER + script],
            self.told.append,
            ends_together=ends_together,
            gathered=self.gathered.append,
        )

    async def run(self, met: Callable[[], None] = lambda: None, stop: StopRequest | None = None) -> None:
        def count(members: list[dict[str, str]]) -> None:
            self.met += 1
            met()

        async with asyncio.timeout(60):
            await self.launch.run(stop or StopRequest(), count)

    @property
    def through(self) -> list[str]:
        """What the events say."""
        return [record.why for record in self.told if isinstance(record, EventRecord)]

    @property
    def lives(self) -> list[int]:
        return [peer.lives for peer in self.launch.peers]


async def test_the_number_of_those_that_have_come_is_told(tmp_path: Path) -> None:
    run = Fakes(tmp_path, 'ready()\ncontact()\ntell("gathered", 2)\ndone()\n')
    await run.run()
    assert run.gathered == [2, 2, 2]


async def test_a_peer_killed_before_it_has_come_up_is_started_anew(tmp_path: Path) -> None:
    """Both of them: the run waits for all, so nobody ends before all have come up."""
    script = """
restarted or name == "2" or die()
ready()
contact()
touch("up-" + name)
await_files("up-*", 3)
done()
"""
    run = Fakes(tmp_path, script)
    await run.run()
    assert run.lives == [2, 2, 1]
    assert [peer.exit_code for peer in run.launch.peers] == [0, 0, 0]


async def test_a_restarted_founder_joins_through_a_member(tmp_path: Path) -> None:
    script = """
ready()
if name != "0":
    contact()
    tell("inside")
    touch("inside-" + name)
    await_files("again", 1)
elif not restarted:
    await_files("inside-*", 2)
    die()
else:
    through(contact())
    touch("again")
done()
"""
    run = Fakes(tmp_path, script)
    await run.run()
    assert (run.lives, run.met) == ([2, 1, 1], 2)
    assert run.through[0] in ("through 1", "through 2")


async def test_a_restarted_founder_founds_the_run_while_no_peer_is_a_member_yet(tmp_path: Path) -> None:
    script = """
ready()
if name != "0":
    contact()
    touch("up-" + name)
    until("gone")
    assert until("contact")["id"] == "0"
elif not restarted:
    await_files("up-*", 2)
    die()
else:
    through(contact())
done()
"""
    run = Fakes(tmp_path, script)
    await run.run()
    assert run.lives == [2, 1, 1]
    assert "through None" in run.through


async def test_a_peer_cut_off_by_a_killed_peer_is_started_anew_too(tmp_path: Path) -> None:
    script = """
ready()
contact()
if name == "1" and not restarted:
    await_files("waiting", 1)
    die()
if name == "2" and not restarted:
    touch("waiting")
    until("gone")
    tell("cut off", "1 of 3 peers are left")
    sys.exit(2)
if name == "2":
    touch("again")
await_files("again", 1)
done()
"""
    run = Fakes(tmp_path, script)
    await run.run()
    assert run.lives == [1, 2, 2]


async def test_a_peer_killed_over_and_over_ends_the_run(tmp_path: Path) -> None:
    run = Fakes(tmp_path, "name == '0' or die(); ready(); until('stop')")
    with pytest.raises(RunFailed, match=r"peer \d was killed by signal 9, 4 times"):
        await run.run()


@pytest.mark.parametrize("kind", ["error", "cut off"])
async def test_a_failed_peer_is_not_started_anew(tmp_path: Path, kind: str) -> None:
    fails = f"name == '1' and (tell('{kind}', 'task.py, line 3: no data'), sys.exit(2))"
    run = Fakes(tmp_path, f"{fails}; ready(); until('stop')")
    with pytest.raises(RunFailed, match=r"peer 1: task\.py, line 3"):
        await run.run()
    assert run.lives == [1, 1, 1]


ALL_ARE_UP = """
ready()
contact()
touch("in-" + name)
await_files("in-*", 3)
"""


@pytest.mark.parametrize(("kind", "error"), [("wrong task", TaskError), ("wrong settings", SettingsError)])
async def test_a_peer_that_refuses_the_task_before_all_are_up_fails_the_run_with_its_own_error(
    tmp_path: Path, kind: str, error: type[Exception]
) -> None:
    fails = f"name == '1' and (tell('{kind}', 'task.py: no data'), sys.exit(2))"
    with pytest.raises(error, match=r"^peer 1: task\.py: no data$"):
        await Fakes(tmp_path, f"{fails}; ready(); until('stop')").run()


async def test_a_task_that_a_peer_refuses_later_is_a_failure_of_the_run(tmp_path: Path) -> None:
    refuses = "name == '1' and (tell('wrong task', 'task.py: no sum'), sys.exit(2))"
    with pytest.raises(RunFailed, match=r"^peer 1: task\.py: no sum$"):
        await Fakes(tmp_path, f"{ALL_ARE_UP}{refuses}; until('stop')").run()


async def test_a_peer_killed_after_the_first_round_is_lost(tmp_path: Path) -> None:
    script = """
ready()
contact()
touch("in-" + name)
if name == "1":
    await_files("in-*", 3)
    exchanged()
    die()
until("gone")
done()
"""
    run = Fakes(tmp_path, script)
    await run.run()
    assert run.lives == [1, 1, 1]
    assert [peer.exit_code for peer in run.launch.peers] == [0, -9, 0]


@pytest.mark.parametrize("ends_together", [True, False])
async def test_the_first_peer_that_finishes_ends_the_run_only_where_all_end_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_together: bool
) -> None:
    """The others are killed before they hear of its end, or go on after that."""
    monkeypatch.setattr("samovar.peers.launch.launcher.GRACE_S", -1.0)  # with 1 s of patience: at once
    last = """
if name == "1":
    exchanged()
    tell("ended", {"finished": True, "metrics": {}})
    die()
until("gone")
done()
"""
    run = Fakes(tmp_path, ALL_ARE_UP + last, ends_together=ends_together)
    await run.run()
    assert [peer.exit_code for peer in run.launch.peers] == ([-9, -9, -9] if ends_together else [0, -9, 0])


async def test_an_error_after_all_peers_have_met_ends_the_run_and_is_told(tmp_path: Path) -> None:
    def met() -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        await Fakes(tmp_path, "ready(); until('stop')").run(met)


async def test_a_failed_peer_is_told_of_though_its_folder_is_gone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    fails = "name == '1' and (shutil.rmtree(orders['folder']), sys.exit(3))"
    run = Fakes(tmp_path / "run", f"{fails}; ready(); until('stop')")
    with pytest.raises(RunFailed, match="peer 1 exited with 3: its log cannot be read"):
        await run.run()


KEEPING = """
    tell("keeping", True)
    await_files("killed", 1)
    tell("keeping", False)
    sys.exit()
"""
EXITING = """
    while not glob.glob(orders["folder"] + "/killed"):
        tell("ended", {"finished": False, "metrics": {}})
        time.sleep(0.01)
    sys.exit()
"""


@pytest.mark.parametrize("last", [KEEPING, EXITING, "pass"], ids=["keeping", "exiting", "hanging"])
async def test_a_stopped_peer_may_write_its_checkpoint_to_the_end_and_has_time_to_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """However long that takes; who does nothing of the kind is killed."""
    monkeypatch.setattr("samovar.peers.launch.launcher.GRACE_S", 0.3)
    script = f"""
ready()
contact()
touch("up-" + name)
until("stop")
if name == "1":
    {last}
until("the end of time") if name != "2" else None
"""
    run, stop = Fakes(tmp_path, script), StopRequest()

    async def stopped() -> None:
        while len(list(tmp_path.glob("up-*"))) < 3:  # noqa: ASYNC110, ASYNC240  # it is another process
            await asyncio.sleep(0.01)
        stop.set()
        while run.launch.peers[0].running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (tmp_path / "killed").touch()

    stopping = asyncio.create_task(stopped())
    await run.run(stop=stop)
    await stopping
    assert [peer.exit_code for peer in run.launch.peers] == [-9, -9 if last == "pass" else 0, 0]
    assert run.launch.peers[0].killed == "stopped, and killed as it had not ended 0.3 s later"


SAVING = """
until("stop")
tell("ended", {"finished": False, "metrics": {}})
touch("left-" + name)
time.sleep(SECONDS)
sys.exit()
"""


@pytest.mark.parametrize("again", [False, True], ids=["saves for twice the usual time", "is stopped again"])
async def test_a_script_that_was_stopped_may_save_for_long_unless_it_is_stopped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr("samovar.peers.launch.launcher.GRACE_S", 0.3)
    monkeypatch.setattr("samovar.peers.launch.stop_request.QUIET_S", 0.0)
    saving = SAVING.replace("SECONDS", "1000" if again else "0.6")
    run, stop = Fakes(tmp_path, ALL_ARE_UP + saving), StopRequest()

    async def stopped() -> None:
        while not run.launch.met:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stop.set()
        while len(list(tmp_path.glob("left-*"))) < 3:  # noqa: ASYNC110, ASYNC240  # it is another process
            await asyncio.sleep(0.01)
        if again:
            stop.set()

    stopping = asyncio.create_task(stopped())
    await run.run(stop=stop)
    await stopping
    assert [peer.exit_code for peer in run.launch.peers] == ([-9] * 3 if again else [0] * 3)


def test_a_hasty_second_ctrl_c_counts_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 10.0 + QUIET_S, 10.1 + QUIET_S))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    stop, killed = StopRequest(), list[bool]()
    for _ in range(3):
        stop.set()
        killed.append(stop.at_once)
    assert killed == [False, False, True]
