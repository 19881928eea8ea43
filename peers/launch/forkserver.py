"""The fork server: a process that has imported PyTorch, and from which a launcher's peers are forked.

Importing PyTorch takes two to four seconds of one core, longer than many a short run. Peers forked from one process
share one import and its memory. The fork server does no numerical work, and its forks use none of its files and sockets
but the log and the control line of their own, so a fork of it behaves like a new process.

It reads requests from an inherited socket: the path of a log file, with a file descriptor of the new peer's control
line. It replies `{"forked": pid}`, and `{"ended": [pid, exit code]}` once that process has ended. The fork server ends
when the socket is closed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import traceback

import numpy

from ..machine.process_name import name_process
from ..machine.torch_imports import import_all_of_torch
from .control import CONTROL_VARIABLE
from .process import main as be_a_peer

PATH_BYTES_MAX = 4096


def main() -> None:
    """Entry point of the fork server: fork peers on request, until the launcher closes the line; the process then
    exits."""
    import_all_of_torch()
    gc.freeze()  # the peers' collections skip these objects, and so copy no shared pages
    line = socket.socket(fileno=int(os.environ.pop(CONTROL_VARIABLE)))
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler there is no wakeup
    signal.set_wakeup_fd(waker.fileno())
    with contextlib.suppress(ConnectionError), selectors.DefaultSelector() as selector:  # the launcher is gone
        for end in (line, woken):
            selector.register(end, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(PATH_BYTES_MAX)
                    _reap(line)
                else:
                    log, control, _, _ = socket.recv_fds(line, PATH_BYTES_MAX, 1)
                    if not log:
                        raise ConnectionResetError
                    _fork(line, log, control[0])
    os._exit(0)  # tearing PyTorch down takes seconds, in which SIGCHLD could write to a closed socket


def _fork(line: socket.socket, log: bytes, control: int) -> None:
    pid = os.fork()
    if pid:
        os.close(control)
        _tell(line, "forked", pid)
        return
    try:
        _become_a_process_of_its_own(line, log, control)
        be_a_peer()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _become_a_process_of_its_own(line: socket.socket, log: bytes, control: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.close()
    os.setsid()
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for ours, standard in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(ours, standard)
    os.set_inheritable(control, True)
    os.environ[CONTROL_VARIABLE] = str(control)
    # After a fork Python reseeds its own generator, and PyTorch's has one default seed. NumPy's must be reseeded.
    numpy.random.seed()  # noqa: NPY002
    name = os.path.basename(os.fsdecode(log)).removesuffix(".log")
    name_process(name)


def _reap(line: socket.socket) -> None:
    """Reap the forks that have ended, and report each to the launcher."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(line, "ended", [pid, os.waitstatus_to_exitcode(status)])


def _tell(line: socket.socket, kind: str, content: object) -> None:
    line.sendall(json.dumps({kind: content}).encode() + b"\n")


if __name__ == "__main__":
    main()
