"""Spawning: peers of a task are forked from one process, each as much its own as one that was started anew."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from samovar.peers import spawn
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


ZYGOTE = """
import os, sys
import samovar.peers.early_imports as early
from samovar.peers import zygote

def tell():
    print([name in sys.modules for name in ("library", "mine")], flush=True)
    os._exit(0)

early.sysconfig.get_path = lambda kind: os.environ["INSTALLED"]
zygote.be_a_peer = tell
zygote.main()
"""
"""One for which what is installed is in a folder of the test's, and whose forks tell what has been imported."""


def task_with(library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A task file that imports a library, and a module beside it."""
    installed, task = folder / "installed", folder / "task.py"
    installed.mkdir()
    (installed / "library.py").write_text(library)
    (folder / "mine.py").write_text("")
    task.write_text("import missing\nimport mine\nfrom library import anything\n")
    monkeypatch.setenv("INSTALLED", str(installed))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH")))))
    monkeypatch.setattr(spawn, "_ZYGOTE", [sys.executable, "-c", ZYGOTE])
    monkeypatch.chdir(folder)
    return str(task)


async def test_forks_have_the_libraries_that_their_task_imports_but_no_module_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawner, log = Spawner(None, task_with("anything = 1", tmp_path, monkeypatch)), tmp_path / "peer-0.log"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await spawner.spawn(theirs, log)
        assert await process.wait() == 0
    await spawner.close()
    assert log.read_text("utf-8") == "[True, False]\n"


async def test_a_library_that_starts_a_thread_is_left_to_each_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    spawner = Spawner(None, task_with(library, tmp_path, monkeypatch))
    process, seen, control = await forked(spawner, tmp_path / "peer-0.log")
    zygote = seen.parent()
    assert zygote is not None
    assert zygote.cmdline()[1:] == ["-m", "samovar.peers.zygote"], "begun anew, without the task"
    await control.close()
    assert await process.wait() == 1
    await spawner.close()
