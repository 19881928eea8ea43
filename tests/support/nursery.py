"""A nursery: a process that has imported PyTorch and this library, and from which other programs are forked.

Importing takes each program two to three seconds of a core, and tests start some hundred of them: launchers, zygotes
and scripts. A fork runs its program's main module as a new process would, with the arguments, the environment, the
folder and the files that it was given. It is a child of the process that asked for it, which is a subreaper: the
nursery forks twice, and the process in between ends.

Programs are still started as users start them for the README (`test_readme`) and under limits (`test_limits`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy
from stuck import tell_when_asked

import samovar
from samovar.peers.launch import forkserver, spawn
from samovar.peers.launch.control import CONTROL_VARIABLE
from samovar.peers.machine.torch_imports import do_without_compiler, import_all_of_torch

NAME = "nursery"
"""In the system's list of processes."""
ZYGOTE = "samovar.peers.launch.forkserver"
OPEN_FILES = "NURSERY_OPEN_FILES"
"""In the environment of a program, the most files that it and all its children may have open."""
REQUEST_BYTES_MAX = 1 << 18
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_LIBC = ctypes.CDLL(None)


class Nursery:
    """The side of the process that asks."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def begin(cls) -> Nursery:
        """As a process of its own, which imports all anew."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            _PROCESSES.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]))
        return cls(ours)

    @classmethod
    def of_this_process(cls) -> Nursery:
        if not _BEGUN:
            _BEGUN.append(cls.begin())
        return _BEGUN[0]

    def fork(self, command: Sequence[str], folder: str, environment: dict[str, str], **files: int) -> int:
        """The number of a new child of this process, which runs ``python COMMAND``. Its `files` are its standard ones
        and others, by the numbers that they are to have."""
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        request = json.dumps([command, folder, environment, [int(number[1:]) for number in files]]).encode()
        assert len(request) < REQUEST_BYTES_MAX
        socket.send_fds(self._end, [request], list(files.values()))
        answer = self._end.recv(REQUEST_BYTES_MAX)
        assert answer, "the nursery is gone"
        return int(answer)


_PROCESSES: list[subprocess.Popen[bytes]] = []
_BEGUN: list[Nursery] = []


class Forked(subprocess.Popen[str]):
    """``python ARGUMENTS``, from the nursery."""

    def _execute_child(self, args: list[str], *told: Any) -> None:  # what Popen calls to begin the process
        folder, environment, (stdin, _, _, stdout, _, stderr) = told[4], told[5], told[9:15]
        standard = [number if given == -1 else given for number, given in enumerate((stdin, stdout, stderr))]
        files = {f"_{number}": file for number, file in enumerate(standard)}
        self.pid = Nursery.of_this_process().fork(args[1:], os.fspath(folder), environment, **files)
        self._child_created = True
        made = {devnull} if (devnull := getattr(self, "_devnull", None)) is not None else set[int]()
        made |= {file for file, ours in ((stdin, told[10]), (stdout, told[11]), (stderr, told[13])) if ours != -1}
        for file in made:
            os.close(file)


async def execute(command: list[str], control: socket.socket, log: Path) -> spawn.Fork:
    """In the place of `spawn._execute`, where that would begin a process."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", CONTROL_VARIABLE: str(control.fileno())}
    with log.open("ab") as out, Path(os.devnull).open() as nothing:  # noqa: ASYNC230  # as what it stands for does
        numbers = (nothing.fileno(), out.fileno(), out.fileno(), control.fileno())
        files = dict(zip(("_0", "_1", "_2", f"_{control.fileno()}"), numbers, strict=True))
        fork = spawn.Fork(Nursery.of_this_process().fork(command[1:], os.getcwd(), environment, **files))
    fork.adopt()
    return fork


# ---- the nursery's own side


def serve(end: socket.socket) -> list[str]:
    """Fork on request. Returns in each fork, with the command that it is to run."""
    _LIBC.prctl(_PR_SET_NAME, NAME.encode(), 0, 0, 0)
    while True:
        request, files, _, _ = socket.recv_fds(end, REQUEST_BYTES_MAX, 8)
        if not request:
            os._exit(0)
        told, tells = os.pipe()
        if os.fork():
            os.wait()  # until then who asked would not find the process among its children
            end.send(os.read(told, REQUEST_BYTES_MAX))
            for file in (*files, told, tells):
                os.close(file)
            continue
        if pid := os.fork():
            os.write(tells, str(pid).encode())
            os._exit(0)
        for file in (end.detach(), told, tells):
            os.close(file)
        command, folder, environment, numbers = json.loads(request)
        _become(folder, environment, dict(zip(numbers, files, strict=True)))
        return list(command)


def _become(folder: str, environment: dict[str, str], files: dict[int, int]) -> None:
    """What a new process has of its own."""
    apart = {number: fcntl.fcntl(file, fcntl.F_DUPFD, 100) for number, file in files.items()}
    for file in files.values():
        os.close(file)
    for number, file in apart.items():
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    if most := environment.pop(OPEN_FILES, ""):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(most), int(most)))
    os.environ.clear()
    os.environ.update(environment)
    numpy.random.seed()  # noqa: NPY002
    tell_when_asked()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through="PYTHONUNBUFFERED" in environment)


def run(command: list[str]) -> None:
    """``python COMMAND``."""
    if command[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *command[2:]], ""
        exec(command[1], vars(importlib.import_module("__main__")))
        return
    if command[0] != "-m":
        sys.argv, sys.path[0] = command, str(Path(command[0]).resolve().parent)
        os.setsid()
        if "samovar.train(" in Path(command[0]).read_text("utf-8"):
            _begin_a_nursery_of_its_own()
        runpy.run_path(command[0], run_name="__main__")
        return
    sys.argv, sys.path[0] = command[1:], os.getcwd()
    if command[1] == "samovar":
        _begin_a_nursery_of_its_own()
        importlib.import_module("samovar.__main__").main()
        return
    assert command[1] == ZYGOTE
    _LIBC.prctl(_PR_SET_NAME, b"zygote", 0, 0, 0)
    os.setsid()
    forkserver.main()


def run_to_its_end(command: list[str]) -> NoReturn:
    """``python COMMAND``, but that Python's objects are not freed one by one in the end: that would copy all the memory
    that this process shares with the nursery, which takes a third of a second."""
    code = 0
    try:
        run(command)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does at its end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads, or the program has closed it
            stream.flush()
    os._exit(code & 0xFF)


def _begin_a_nursery_of_its_own() -> None:
    """Of a launcher, for its zygote: before there is any thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        run_to_its_end(serve(theirs))
    theirs.close()
    _BEGUN.append(Nursery(ours))
    setattr(spawn, "_execute", execute)  # noqa: B010  # another kind of process, with the same interface
    setattr(os, "execve", _become_another)  # noqa: B010


def _become_another(_: str, command: list[str], environment: dict[str, str]) -> NoReturn:
    """In the place of `os.execve`: a process that has imported all already takes the place of this one."""
    pid = Nursery.of_this_process().fork(command[1:], os.getcwd(), environment, _0=0, _1=1, _2=2)
    ended = os.waitpid(pid, 0)[1]
    os._exit(os.waitstatus_to_exitcode(ended))


def import_all() -> None:
    """What programs import: all of the library, and what the examples import too. PyTorch's compiler comes when a
    program compiles; each fork would have to copy the tables of its memory, a fifth of all."""
    do_without_compiler()
    import_all_of_torch()
    library = pkgutil.walk_packages(samovar.__path__, "samovar.")
    for module in (*(found.name for found in library if "__main__" not in found.name), "sklearn.datasets"):
        importlib.import_module(module)


if __name__ == "__main__":
    import_all()
    gc.freeze()
    run_to_its_end(serve(socket.socket(fileno=int(sys.argv[1]))))
