"""Spawning: peers of a task are forked from one process, each as much its own as one that was started anew.

What forks must be a process in which nothing else was done, as a launcher is: each test here has one.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import psutil
import pytest

from samovar.peers.control import Control
from samovar.peers.spawn import Fork, Spawner, SpawnError

Body = Callable[[Spawner, Path], Coroutine[None, None, None]]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peers are forked on Linux only")


def begin(body: str, folder: Path) -> None:
    """What a process of its own does: that function, with a spawner of its own."""
    spawner = Spawner(None, folder / "peer-0.log", own_process=True)
    asyncio.run(globals()[body](spawner, folder))


async def forked(spawner: Spawner, log: Path) -> tuple[Fork, psutil.Process, Control]:
    """A peer that waits for its orders."""
    ours, theirs = socket.socketpair()
    before = set(psutil.Process().children(recursive=True))
    with theirs:
        process = await spawner.spawn(theirs, log)
    assert isinstance(process, Fork)
    (seen,) = [new for new in set(psutil.Process().children(recursive=True)) - before if new.pid == process.pid]
    return process, seen, await Control.over(ours)


async def each_has_a_log_and_an_end_of_its_own(spawner: Spawner, folder: Path) -> None:
    logs = [folder / f"peer-{index}.log" for index in range(2)]
    peers = [await forked(spawner, log) for log in logs]
    (zygote,) = {seen.parent() for _, seen, _ in peers}
    assert zygote is not None
    for process, name in zip((zygote, *(seen for _, seen, _ in peers)), ("zygote", "peer-0", "peer-1"), strict=True):
        while psutil.Process(process.pid).name() != f"samovar {name}":  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)
    for fork, seen, control in peers:
        assert fork.returncode is None
        await control.close()
        assert await fork.wait() == 1
        assert not seen.is_running()
    for log in logs:
        assert log.read_text("utf-8").splitlines()[-1].endswith("the launcher of this process is gone")
    await spawner.close()
    assert not zygote.is_running()


async def who_is_killed_is_told_by_its_signal(spawner: Spawner, folder: Path) -> None:
    process, _, control = await forked(spawner, folder / "peer-0.log")
    process.kill()
    assert await process.wait() == process.returncode == -9
    process.kill()  # of no effect: its number may be another's by now
    await control.close()
    await spawner.close()


async def when_the_zygote_is_killed_its_forks_end(spawner: Spawner, folder: Path) -> None:
    process, seen, control = await forked(spawner, folder / "peer-0.log")
    zygote = seen.parent()
    assert zygote is not None
    zygote.kill()
    assert await process.wait() == -9
    assert (await control.hear())[0] == "closed"
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SpawnError, match="gone"):
        await spawner.spawn(theirs, folder / "peer-1.log")
    await control.close()
    await spawner.close()


async def who_stops_does_not_wait_for_the_zygote(spawner: Spawner, folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        spawning = asyncio.create_task(spawner.spawn(theirs, folder / "peer-0.log"))
        await asyncio.sleep(0)
        spawner.stop()
        with pytest.raises(SpawnError, match="gone"):
            await spawning
    await spawner.close()


async def who_stops_before_anything_is_spawned_spawns_nothing(spawner: Spawner, folder: Path) -> None:
    spawner.stop()
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SpawnError, match="gone"):
        await spawner.spawn(theirs, folder / "peer-0.log")
    await spawner.close()


@pytest.mark.parametrize(
    "body",
    [
        each_has_a_log_and_an_end_of_its_own,
        who_is_killed_is_told_by_its_signal,
        when_the_zygote_is_killed_its_forks_end,
        who_stops_does_not_wait_for_the_zygote,
        who_stops_before_anything_is_spawned_spawns_nothing,
    ],
    ids=lambda body: body.__name__,
)
def test_peers_of_a_task_are_forked_from_one_process(body: Body, tmp_path: Path) -> None:
    code = f"import test_spawn; test_spawn.begin({body.__name__!r}, __import__('pathlib').Path({str(tmp_path)!r}))"
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr


async def test_where_other_threads_may_hold_locks_each_peer_is_a_new_process(tmp_path: Path) -> None:
    log = tmp_path / "peer-0.log"
    spawner = Spawner(None, log, own_process=False)
    ours, theirs = socket.socketpair()
    with theirs:
        process = await spawner.spawn(theirs, log)
    assert isinstance(process, asyncio.subprocess.Process)
    assert psutil.Process(process.pid).parent() == psutil.Process()
    control = await Control.over(ours)
    await control.close()
    assert await process.wait() == 1
    await spawner.close()
