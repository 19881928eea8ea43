"""A run of real processes under test: started as a user starts it, watched through the files it writes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from click.testing import CliRunner, Result
from nursery import NAME, OPEN_FILES, ZYGOTE, Forked, execute
from stuck import ended_within, told

from samovar import join
from samovar.__main__ import main
from samovar.peers.launch import spawn
from samovar.peers.training import devices
from samovar.peers.user_code import called_with

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits.py"
STEADY = ROOT / "tests" / "support" / "tasks" / "steady.py"
HANGS = ROOT / "tests" / "support" / "tasks" / "hangs.py"
COUNTED = ROOT / "tests" / "support" / "tasks" / "counted.py"
LIMIT_S = 120.0
_WHOLE_RUN_S = 240.0
"""Before pytest ends the test, which leaves the run's sockets open to the tests after it."""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    left: list[psutil.Process]
    """Processes of the run that outlived it."""

    @property
    def result(self) -> dict[str, Any]:
        lines = self.out.strip().splitlines()
        assert len(lines) == 1, f"not one JSON object: {self.out!r} {self.err!r}"
        parsed: dict[str, Any] = json.loads(lines[0])
        return parsed

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("samovar: ")]
        assert len(lines) == 1, f"not one clear line: {self.err!r}"
        return lines[0]


_RUNNING: set[Live] = set()


def heed_interrupts() -> None:
    """Let SIGINT end what is started from now on. A shell starts background processes with SIGINT ignored, and their
    children inherit this: a run that is sent SIGINT would never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_all() -> None:
    """End what a test that failed did not: else it slows down all that come after it, for ever."""
    for run in list(_RUNNING):
        run.peers()
        run.process.kill()
        for peer in run._known.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                peer.kill()
        run.end()


def _children(pid: int) -> dict[int, tuple[psutil.Process, list[str]]]:
    """The children of a process that live, with the name and the command line of each. A child that ends meanwhile is
    left out, and no other."""
    found = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                found[child.pid] = child, [child.name(), *child.cmdline()]
    return found


class Live:
    """``samovar ARGUMENTS`` in `folder`. Afresh: it imports all anew. `files`: the most that it, and each of its peers,
    may have open; None: as many as this process."""

    def __init__(
        self, folder: Path, *arguments: object, run: str = "run", afresh: bool = False, files: int | None = None
    ) -> None:
        self.folder = folder / run
        self._known: dict[int, psutil.Process] = {}
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"} | ({} if files is None else {OPEN_FILES: str(files)})
        self.process = (subprocess.Popen if afresh else Forked)(
            [sys.executable, "-m", "samovar", *map(str, arguments)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        _RUNNING.add(self)

    def peers(self) -> dict[str, psutil.Process]:
        """Peer processes by name, in the order in which they were spawned."""
        children = _children(self.process.pid)
        for pid, (child, words) in [*children.items()]:
            if "zygote" in words or ZYGOTE in words:
                self._known[pid] = child
                children = _children(pid)
        found = {pid: child for pid, (child, words) in sorted(children.items()) if NAME not in words}
        self._known.update(found)
        return {str(index): child for index, child in enumerate(found.values())}

    def records(self, peer: str = "*") -> list[dict[str, Any]]:
        rows = []
        for file in self.folder.glob(f"peer-{peer}.jsonl"):
            for line in file.read_bytes().split(b"\n")[:-1]:
                rows.append(json.loads(line))
        return rows

    def rounds(self, peer: str = "*") -> int:
        return max((row["round"] for row in self.records(peer) if row["kind"] == "round"), default=0)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for what the run itself does; fails when the run ends first or nothing happens for too long. The peers
        then say what they wait for."""
        limit = time.monotonic() + LIMIT_S
        while not (value := condition()):
            assert self.process.poll() is None, f"the run ended before {what}: {self.end()}"
            if time.monotonic() > limit:
                self._tell()
                pytest.fail(f"no {what} within {LIMIT_S} s")
            time.sleep(0.01)
        self.peers()
        return value

    def _tell(self) -> None:
        """Have the peers print what they wait for, and end them."""
        told(list(self.peers().values()), self.folder)

    def signal(self, number: signal.Signals) -> None:
        self.peers()
        self.process.send_signal(number)

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end, for `limit_s` at most; never leaves a process behind."""
        self.peers()
        try:
            out, err = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._tell()
            raise
        finally:
            if self.process.poll() is None:
                self.process.kill()
            _, left = psutil.wait_procs(list(self._known.values()), timeout=4)
            for process in left:
                process.kill()
            _RUNNING.discard(self)
        return Ended(self.process.returncode, out, err, left)


@contextlib.contextmanager
def run_here(folder: Path, **settings: Any) -> Iterator[dict[str, Any]]:
    """A run of one peer in this process, with a model of 3 elements in 2 tensors; yields how others join it."""
    model = torch.nn.Linear(2, 1)
    # The words of pytest's command line are none of the run's arguments.
    with (
        called_with(Path("script.py"), ""),
        join(run=folder, listen="tcp://127.0.0.1:0", report=False, **settings) as run,
    ):
        run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        assert run.invitation is not None
        yield run.invitation


def python(*command: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """``python COMMAND``, from the nursery. `how`: its folder and its environment, as subprocess takes them."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    words = [sys.executable, *map(str, command)]
    process = Forked(words, **{"cwd": Path.cwd(), "env": {**os.environ}, **pipes, **how})
    out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def children() -> list[psutil.Process]:
    """Of this process, and theirs; but for multiprocessing's own, which is none of a run's."""
    return [child for child in psutil.Process().children(recursive=True) if not _is_none_of_a_run(child)]


def _is_none_of_a_run(child: psutil.Process) -> bool:
    """multiprocessing's own, the nursery, and what has ended: a launcher is heir to the children of killed peers."""
    try:
        return child.name() == NAME or any("resource_tracker" in word for word in child.cmdline())
    except psutil.NoSuchProcess:  # psutil.ZombieProcess is one
        return True


def verb(*arguments: object) -> Result:
    """``samovar ARGUMENTS`` in this process. Processes of a run come from the nursery. A seat that a peer takes here is
    free when it is over, as if its process had ended."""
    seats = list[socket.socket]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "_execute", execute)
        patch.setattr(devices, "_KEPT", seats)
        try:
            return CliRunner().invoke(main, [*map(str, arguments)])
        finally:
            for seat in seats:
                seat.close()


def samovar(folder: Path, *arguments: object, limit_s: float = _WHOLE_RUN_S) -> Ended:
    """Run ``samovar ARGUMENTS`` to its end. The launcher is this process, which has loaded all that it needs. After
    `limit_s` the peers say what they wait for, and are killed."""
    with contextlib.chdir(folder), ended_within(limit_s, folder, children):
        done = verb(*arguments)
    _, left = psutil.wait_procs(children(), timeout=4)
    for process in left:
        process.kill()
    return Ended(done.exit_code, done.stdout, done.stderr, left)
