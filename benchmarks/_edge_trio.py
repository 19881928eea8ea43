"""Two edge peers and the peer that both reach, each in a network namespace of its own, and the bytes that pass."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol

import psutil
from _processes import lives
from netns import Town, do, host, shape_own, usual_tcp

from samovar.peers.records.run import peer_file

RATE, BUDGET = "1mbit", "800kbit"
EDGES = (1, 2)
WINDOW_S = 1.0
_HUB_PORT, _PATIENCE_S, _LIMIT_S, _SAMPLE_S = 4701, 10.0, 900.0, 0.02


@dataclass(frozen=True)
class Work:
    """A training: `own`, the words of its command; `mixes`, exchanges of each edge with both others until it is over;
    `model_bytes`: of its model, in float32."""

    name: str
    task: Path
    own: tuple[str, ...]
    mixes: int
    model_bytes: int


@dataclass
class Traffic:
    """Bytes that the interface of one edge has sent and received until each time."""

    times_s: list[float] = field(default_factory=list)
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)

    def read(self, pid: int) -> None:
        """Add a sample, from the namespace of a process."""
        line = next(line for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines() if "cable" in line)
        counts = line.partition(":")[2].split()
        self.times_s.append(time.monotonic())
        self.up.append(int(counts[8]))
        self.down.append(int(counts[0]))


def most_in_a_window(times_s: list[float], total: list[int]) -> int:
    """The most bytes in any window of `WINDOW_S`."""
    most = begin = 0
    for end in range(len(times_s)):
        while times_s[end] - times_s[begin] > WINDOW_S:
            begin += 1
        most = max(most, total[end] - total[begin])
    return most


class Home(Protocol):
    """Where the hub and the edges run. `hub`: the address at which the hub listens; `budget`: that of each edge."""

    hub: str
    budget: str

    def ask(self, index: int, what: object) -> Any:
        """Start the command, with its output in the file, of which `what` consists. Returns the number of its
        process."""
        ...


class Loopback:
    """All three on this machine's loopback, on links that nobody shapes."""

    budget = "8mbit"

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.hub = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._started: list[subprocess.Popen[bytes]] = []

    def ask(self, index: int, what: object) -> Any:
        self._started.append(started(what))
        return self._started[-1].pid


class Three(Town):
    """The three namespaces."""

    hub, budget = f"tcp://{host(0)}:{_HUB_PORT}", BUDGET

    def __init__(self, ends: ExitStack) -> None:
        super().__init__(ends, 1 + len(EDGES), inhabit)
        self.shape(RATE, EDGES)
        for index in EDGES:
            do("ip", "link", "set", "dev", f"port{index}", "type", "bridge_slave", "isolated", "on")
        self.tell(usual_tcp())
        self.hear()

    def ask(self, index: int, what: object) -> Any:
        """The answer of one process."""
        self.lines[index].send(what)
        return self.lines[index].recv()


class Trio:
    """The hub and two edges at work. `folder`: where the run folders are, named after the peers."""

    def __init__(self, home: Home, work: Work, folder: Path) -> None:
        self._home, self._work, self.folder, self.pids = home, work, folder, dict[str, int]()
        common = ("--patience-s", str(_PATIENCE_S), "--no-report", "--json", "--run")
        hub = ("train", str(work.task), "--peers", "1", "--protocol", "gossip", "--topology", "complete", *work.own)
        self._start(0, "0", (*hub, "--steps", "100000000", "--listen", home.hub, "--evaluate-every", "5", *common))
        line = self.until(lambda: _words(folder / "0" / "join.txt"), "the hub's join line")
        for index in EDGES:
            edge = ("join", line[2], str(work.task), "--invite", line[-1], "--edge", "--budget", home.budget)
            self._start(index, f"edge{index}", (*edge, "--name", f"edge{index}", *common))

    @property
    def edges(self) -> list[str]:
        return [name for name in self.pids if name != "0"]

    def _start(self, index: int, name: str, words: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "samovar", *words, str(self.folder / name)]
        self.pids[name] = self._home.ask(index, (command, str(self.folder / f"{name}.txt")))

    def rows(self, name: str, kind: str) -> list[dict[str, Any]]:
        """A peer's records of this kind so far."""
        file = peer_file(self.folder / name, name)
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        return [row for row in (json.loads(line) for line in lines if line.endswith("\n")) if row["kind"] == kind]

    def mixes(self, name: str, members: int = 3) -> int:
        """Exchanges in which a peer has mixed with the others, all three together."""
        return sum(row["members"] >= members and not row["caught_up"] for row in self.rows(name, "exchange"))

    def has_mixed(self, name: str, times: int) -> bool:
        return self.mixes(name) >= times

    def lost(self) -> list[str]:
        """Who has lost whom."""
        return [
            f"{row['peer']} lost {row['about']}: {row['why']}"
            for name in self.pids
            for row in self.rows(name, "event")
            if row["event"] == "lost"
        ]

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """Wait for a value that is true, and return it; says for what on the standard error."""
        print(f"{self._work.name}: waiting for {what}", file=sys.stderr, flush=True)
        ends = time.monotonic() + _LIMIT_S
        while time.monotonic() < ends:
            if value := found():
                return value
            if dead := [name for name, pid in self.pids.items() if not lives(pid)]:
                said = (self.folder / f"{dead[0]}.txt").read_text(encoding="utf-8")
                raise RuntimeError(f"{self._work.name}: {dead[0]} has ended: {said[-500:]}")
            time.sleep(0.1)
        raise RuntimeError(f"{self._work.name}: no {what} within {_LIMIT_S:g} s")

    def end(self) -> None:
        """End all three, however they take it."""
        processes = [psutil.Process(pid) for pid in self.pids.values() if psutil.pid_exists(pid)]
        for process in processes:
            process.terminate()
        for process in psutil.wait_procs(processes, timeout=20)[1]:
            process.kill()


def _words(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def started(what: Any) -> subprocess.Popen[bytes]:
    """The process of a command, with its output in a file."""
    command, said = what
    with open(said, "w", encoding="utf-8") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)


def inhabit(index: int, line: Connection) -> None:
    """A namespace: shapes what it sends if it is an edge, and starts the commands that it is told. Once the script has
    ended, however it did, the commands are ended."""
    tcp = line.recv()
    if index in EDGES:
        shape_own(RATE, tcp)
    line.send("shaped")
    with ExitStack() as ends:
        while True:
            running = started(line.recv())
            ends.callback(running.terminate)
            line.send(running.pid)


@contextmanager
def watched(pids: dict[str, int]) -> Iterator[dict[str, Traffic]]:
    """Sample the interfaces of these processes' namespaces while the body runs."""
    found, over = {name: Traffic() for name in pids}, Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_S):
            for name, pid in pids.items():
                found[name].read(pid)

    thread = Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
