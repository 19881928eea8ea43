"""Spawning: peers of a task are forked from one process, each as much its own as one that was started anew."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from nursery import Nursery, execute

from samovar.__main__ import main
from samovar.peers.launch import spawn
from samovar.peers.launch.control import Control
from samovar.peers.launch.spawn import Fork, ForkServerKilled, Spawner, SpawnError
from samovar.peers.machine.spinning import SPINS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peers are forked on Linux only")


@pytest.fixture
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zygotes that have not to import anything. The tests without it begin them as launchers do."""
    Nursery.of_this_process()
    monkeypatch.setattr(spawn, "_execute", execute)


warm = pytest.mark.usefixtures("_warm")


async def forked(spawner: Spawner, log: Path) -> tuple[Fork, psutil.Process, Control]:
    """A peer that waits for its orders."""
    ours, theirs = socket.socketpair()
    before = set(psutil.Process().children(recursive=True))
    with theirs:
        process = await spawner.spawn(theirs, log)
    assert isinstance(process, Fork)
    (seen,) = [new for new in set(psutil.Process().children(recursive=True)) - before if new.pid == process.pid]
    return process, seen, await Control.over(ours)


async def test_peers_of_a_task_are_forked_from_one_process_and_have_logs_of_their_own(
    tmp_path: Path,
) -> None:
    spawner, logs = Spawner(None), [tmp_path / f"peer-{index}.log" for index in range(2)]
    peers = [await forked(spawner, log) for log in logs]
    (zygote,) = {seen.parent() for _, seen, _ in peers}
    assert zygote is not None
    for process, seen, control in peers:
        assert process.returncode is None
        await control.close()
        assert await process.wait() == 1
        assert not seen.is_running()
    for log in logs:
        assert log.read_text("utf-8").splitlines()[-1].endswith("the launcher of this process is gone")
    zygote.suspend()  # whatever state it is in
    async with asyncio.timeout(60):
        await spawner.close()
    assert not zygote.is_running()


@warm
async def test_peers_forked_at_the_same_time_have_control_lines_of_their_own(tmp_path: Path) -> None:
    spawner, lines = Spawner(None), [socket.socketpair() for _ in range(3)]
    async with asyncio.timeout(60):
        spawning = (spawner.spawn(theirs, tmp_path / f"peer-{i}.log") for i, (_, theirs) in enumerate(lines))
        processes = await asyncio.gather(*spawning)
        for process, (ours, theirs) in zip(processes, lines, strict=True):
            theirs.close()
            ours.close()
            assert await process.wait() == 1, "it had nobody to hear from any more"
    await spawner.close()


@warm
async def test_a_fork_that_is_killed_is_told_by_its_signal(tmp_path: Path) -> None:
    spawner = Spawner(None)
    process, _, control = await forked(spawner, tmp_path / "peer-0.log")
    process.kill()
    assert await process.wait() == process.returncode == -9
    process.kill()  # of no effect: its number may be another's by now
    await control.close()
    await spawner.close()


@warm
async def test_a_killed_zygote_takes_no_fork_with_it_and_another_takes_its_place(tmp_path: Path) -> None:
    spawner = Spawner(None)
    killed, one, control = await forked(spawner, tmp_path / "peer-0.log")
    ending, two, other = await forked(spawner, tmp_path / "peer-1.log")
    zygote = one.parent()
    assert zygote is not None
    zygote.kill()
    assert spawner._server is not None
    while not spawner._server.ended:  # noqa: ASYNC110  # it is another process, whose end this one has to notice
        await asyncio.sleep(0.01)
    third, three, last = await forked(spawner, tmp_path / "peer-2.log")
    assert three.parent() != zygote
    assert all(seen.is_running() and seen.status() != psutil.STATUS_ZOMBIE for seen in (one, two, three))
    one.kill()
    assert await killed.wait() == killed.returncode == -9
    await other.close()
    assert await ending.wait() == 1, "as it ended by itself"
    await last.close()
    assert await third.wait() == 1
    assert not any(seen.is_running() for seen in (one, two, three)), "none is left as a zombie"
    await control.close()
    await spawner.close()


async def test_a_zygote_that_is_killed_while_it_is_to_fork_is_told_apart(tmp_path: Path) -> None:
    spawner = Spawner(None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = set(psutil.Process().children())
        spawning = asyncio.create_task(spawner.spawn(theirs, tmp_path / "peer-0.log"))
        while not (new := set(psutil.Process().children()) - before):  # noqa: ASYNC110  # it is another process
            await asyncio.sleep(0.01)
        new.pop().kill()
        with pytest.raises(ForkServerKilled, match="gone"):
            await spawning
    await spawner.close()


async def test_a_stopped_spawner_does_not_wait_for_the_fork_server(tmp_path: Path) -> None:
    spawner = Spawner(None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        spawning = asyncio.create_task(spawner.spawn(theirs, tmp_path / "peer-0.log"))
        await asyncio.sleep(0)
        spawner.stop()
        with pytest.raises(SpawnError, match="gone"):
            await spawning
    await spawner.close()


async def test_a_stopped_spawner_starts_no_command_and_says_so_in_one_line(tmp_path: Path) -> None:
    spawner = Spawner([sys.executable, "-S", "-c", ""])
    spawner.stop()
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SpawnError, match="the run is being stopped"):
        await spawner.spawn(theirs, tmp_path / "log")
    assert not (tmp_path / "log").exists()


@warm
async def test_a_stopped_spawner_forks_no_more_and_its_forks_go_on(tmp_path: Path) -> None:
    spawner = Spawner(None)
    process, _, control = await forked(spawner, tmp_path / "peer-0.log")
    spawner.stop()
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SpawnError, match="the run is being stopped"):
        await spawner.spawn(theirs, tmp_path / "peer-1.log")
    assert process.returncode is None
    await control.close()
    assert await process.wait() == 1
    await spawner.close()


@warm
async def test_a_fork_server_that_has_ended_forks_no_more_and_says_so_at_once(tmp_path: Path) -> None:
    server = await spawn.ForkServer.start(tmp_path / "peer-0.log")
    await server.close()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        async with asyncio.timeout(60):
            with pytest.raises(SpawnError, match="gone"):
                await server.fork(theirs, tmp_path / "peer-0.log")


@pytest.mark.parametrize(
    ("chosen", "spins"), [({}, SPINS), ({"OMP_WAIT_POLICY": "ACTIVE"}, "-"), ({"GOMP_SPINCOUNT": "7"}, "7")]
)
async def test_threads_of_a_peers_kernels_soon_sleep_unless_its_user_chose_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], spins: str
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, chosen.get(name, ""))  # so that it is put back
        if name not in chosen:
            monkeypatch.delenv(name)
    told = "import os; print(os.environ.get('GOMP_SPINCOUNT', '-'))"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await Spawner([sys.executable, "-S", "-c", told]).spawn(theirs, tmp_path / "log")
        assert await process.wait() == 0
    assert (tmp_path / "log").read_text("utf-8") == f"{spins}\n"
    assert CliRunner().invoke(main, ["doctor", "--help"]).exit_code == 0
    assert os.environ.get("GOMP_SPINCOUNT", "-") == spins, "for a peer in the process of the command"


@pytest.mark.parametrize(
    ("words", "own", "told"), [(["--edge"], None, "1"), ([], None, "-"), (["--edge"], "", ""), (["--edge"], "0", "0")]
)
def test_an_edge_peer_keeps_no_workspaces_of_products_unless_its_user_has_said(
    monkeypatch: pytest.MonkeyPatch, words: list[str], own: str | None, told: str
) -> None:
    monkeypatch.setenv("MKL_DISABLE_FAST_MM", own or "")  # so that it is put back
    if own is None:
        monkeypatch.delenv("MKL_DISABLE_FAST_MM")
    assert CliRunner().invoke(main, ["join", *words, "--help"]).exit_code == 0
    assert os.environ.get("MKL_DISABLE_FAST_MM", "-") == told


async def test_a_signal_never_takes_an_exit_code_from_its_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may end of itself while the launcher ends all: Popen would reap it, and asyncio not know its end."""

    def reaps(self: subprocess.Popen[bytes]) -> None:
        raise AssertionError("reaped amid a signal")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await Spawner([sys.executable, "-S", "-c", "import time; time.sleep(60)"]).spawn(
            theirs, tmp_path / "log"
        )
        monkeypatch.setattr(subprocess.Popen, "poll", reaps)
        process.kill()
        assert await process.wait() == -9
        process.kill()
    assert process.returncode == -9


@pytest.mark.parametrize(("command", "log"), [("no-such-program", "log"), (sys.executable, "no-such-folder/log")])
async def test_a_process_that_cannot_be_started_is_told_with_the_file_and_the_cause(
    tmp_path: Path, command: str, log: str
) -> None:
    _, theirs = pair = socket.socketpair()
    with pytest.raises(SpawnError, match=r"cannot be started: .*no-such-.*: no such file or directory"):
        await Spawner([command]).spawn(theirs, tmp_path / log)
    for end in pair:
        end.close()
