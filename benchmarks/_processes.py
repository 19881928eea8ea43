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
from typing import Any

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


def bare_bytes() -> int:
    """Resident memory of a process that has imported PyTorch."""
    program = "import torch, psutil; torch.set_num_threads(1); print(psutil.Process().memory_info().rss)"
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def _inhabit(index: int, line: Connection, inhabitant: Inhabitant) -> None:
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the line is closed
        inhabitant(index, line)
