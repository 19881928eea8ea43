"""Spawning: peers of a task are forked from one process, each as much its own as one that was started anew."""

import asyncio
import socket
import sys
from pathlib import Path

import psutil
import pytest

from samovar.peers.control import Control
from samovar.peers.spawn import Fork, Spawner, SpawnError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peers are forked on Linux only")


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


async def test_a_fork_that_is_killed_is_told_by_its_signal(tmp_path: Path) -> None:
    spawner = Spawner(None)
    process, _, control = await forked(spawner, tmp_path / "peer-0.log")
    process.kill()
    assert await process.wait() == process.returncode == -9
    process.kill()  # of no effect: its number may be another's by now
    await control.close()
    await spawner.close()


async def test_when_the_zygote_is_killed_its_forks_end(tmp_path: Path) -> None:
    spawner = Spawner(None)
    process, seen, control = await forked(spawner, tmp_path / "peer-0.log")
    zygote = seen.parent()
    assert zygote is not None
    zygote.kill()
    assert await process.wait() == -9
    assert (await control.hear())[0] == "closed"
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SpawnError, match="gone"):
        await spawner.spawn(theirs, tmp_path / "peer-1.log")
    await control.close()
    await spawner.close()


async def test_who_stops_does_not_wait_for_the_zygote(tmp_path: Path) -> None:
    spawner = Spawner(None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        spawning = asyncio.create_task(spawner.spawn(theirs, tmp_path / "peer-0.log"))
        await asyncio.sleep(0)
        spawner.stop()
        with pytest.raises(SpawnError, match="gone"):
            await spawning
    await spawner.close()
