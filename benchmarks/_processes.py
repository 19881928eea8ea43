"""Processes that measure together, and what is said to them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import psutil

Inhabitant = Callable[[int, Connection], None]
"""What runs in a process, given its number and a line to whoever started it: a function of a module, as it is imported
where it runs. It ends with EOFError when the line is closed."""


class Room:
    """So many processes on this machine; `ends` ends them."""

    def __init__(self, ends: ExitStack, count: int, inhabitant: Inhabitant) -> None:
        context = multiprocessing.get_context("spawn")
        self.processes: list[BaseProcess] = []
        self.lines: list[Connection] = []
        for index in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_inhabit, args=(index, theirs, inhabitant), daemon=True)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ctrl-C is for us, who end them
            process.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            theirs.close()  # else the end of a process that failed would not be seen here
            ends.callback(ours.close)
            self.processes.append(process)
            self.lines.append(ours)

    def tell(self, what: object) -> None:
        """The same to all."""
        for line in self.lines:
            line.send(what)

    def hear(self) -> list[Any]:
        """One word from each."""
        try:
            return [line.recv() for line in self.lines]
        except EOFError:
            raise RuntimeError("a process failed: see above") from None


def lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Resident(NamedTuple):
    """Bytes of a process's memory that are resident. `own`: those of no file, which the process has written; the others
    are pages of files that it maps, mostly code. Their number also depends on how the kernel has read these files
    before, for any process: since Linux 6.18 a page is mapped together with all that were read with it."""

    all: int
    own: int


def resident(pid: int) -> Resident:
    """The resident memory of a process now."""
    kib = dict.fromkeys(("Rss", "Anonymous"), 0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in kib:
            kib[name] = int(rest.split()[0])
    return Resident(kib["Rss"] << 10, kib["Anonymous"] << 10)


def most_resident(pid: int) -> int:
    """The most bytes of a process's memory that were resident so far."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) << 10


def bare() -> Resident:
    """Resident memory of a process that has imported PyTorch and does nothing."""
    program = "import torch; torch.set_num_threads(1); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = resident(process.pid)
        process.kill()
    return found


def bare_bytes() -> int:
    """All resident memory of such a process (`bare`)."""
    return bare().all


def _inhabit(index: int, line: Connection, inhabitant: Inhabitant) -> None:
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the line is closed
        inhabitant(index, line)
