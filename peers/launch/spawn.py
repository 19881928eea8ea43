"""Spawning of peer processes by a launcher: peers of a script as new processes, peers of a task as forks of the fork
server (`forkserver`).

Peers are forked on Linux only. On other systems, system libraries may have started threads before the fork, so each
peer is a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Protocol

from ..machine.spinning import spinning
from ..reasons import reason
from .control import CONTROL_VARIABLE, Control

_ALONE = [sys.executable, "-m", "samovar.peers.launch.process"]
"""The command of one peer of a task, on systems where peers are not forked."""
_FORK_SERVER = [sys.executable, "-m", "samovar.peers.launch.forkserver"]
_UNKNOWN = 1
"""The exit code for a process that was reaped before its code could be read."""
_PR_SET_CHILD_SUBREAPER = 36
_END_S = 2.0
"""Seconds that a fork server that has closed its line may take to end."""


class SpawnError(Exception):
    """No peer can be spawned. The text is one line for the user."""


class ForkServerKilled(SpawnError):
    """The fork server was killed amid a fork."""


class Process(Protocol):
    """A peer process, with the interface of `asyncio.subprocess.Process`."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit code; -N: the process was ended by signal N; None: it is running."""

    async def wait(self) -> int:
        """The exit code (`returncode`), once the process has ended."""
        ...

    def send_signal(self, signal: int) -> None:
        """Send the signal to the process's pid, unless it has ended. `Popen.send_signal` is not used: it would reap a
        process that has just ended, and asyncio would then report the exit code 255
        (https://github.com/python/cpython/issues/87744)."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal)

    def kill(self) -> None:
        """Send SIGKILL to the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class Spawner:
    """Spawns the peers of one run. `command`: the command that starts a peer of a script; None: the peers of a task."""

    def __init__(self, command: list[str] | None) -> None:
        self._command = _ALONE if command is None and sys.platform != "linux" else command
        self._server: ForkServer | None = None
        self._stopped = False
        self._one_at_a_time = asyncio.Lock()

    async def spawn(self, control: socket.socket, log: Path) -> Process:
        """Spawn a process that has `control` as its control line and appends stdout and stderr to the file `log`. The
        process has a copy of `control`; the caller closes its own, also on failure, and awaits `Process.wait`.

        Raises SpawnError when no process can be started, `log` cannot be opened, `stop` was called, or the fork server
        ended amid the fork. If that is ForkServerKilled and `stop` was not called, the caller may call again, which
        starts another fork server. It needs a new control line, because a process may have been forked with this one.
        """
        try:
            async with self._one_at_a_time:
                if self._stopped:
                    raise SpawnError("no peer's process is started any more: the run is being stopped")
                if self._command is not None:
                    return await _execute(self._command, control, log)
                if self._server is None or self._server.ended:
                    self._server = await ForkServer.start(log)
                    if self._stopped:
                        self._server.kill()
                return await self._server.fork(control, log)
        except OSError as error:
            raise SpawnError(f"a peer's process cannot be started: {error.filename or log}: {reason(error)}") from None

    def stop(self) -> None:
        """Make a fork that is under way fail, and each `spawn` from now on: they raise SpawnError. Processes that were
        spawned before continue."""
        self._stopped = True
        if self._server is not None and self._server.forking:
            self._server.kill()

    async def close(self) -> None:
        """End the fork server, if there is one. All its forks must have ended."""
        if self._server is not None:
            await self._server.close()


class Executed(Process):
    """A process that executes a command of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid, self._process = process.pid, process

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()


async def _execute(command: list[str], control: socket.socket, log: Path) -> Process:
    """Run `command` in a session of its own, so that Ctrl-C reaches only the launcher, which stops its peers in good
    order."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # Unbuffered, so that a script's output appears in its log at once and is there when the script is killed.
            env={
                **os.environ,
                **spinning(os.environ),
                "PYTHONUNBUFFERED": "1",
                CONTROL_VARIABLE: str(control.fileno()),
            },
            pass_fds=[control.fileno()],
            start_new_session=True,
        )
    return Executed(process)


class Fork(Process):
    """A process that the fork server has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def ended(self, code: int) -> None:
        """Note that the process has ended, with this exit code; called once."""
        self._ended.set_result(code)

    def adopt(self) -> None:
        """Wait for this fork in place of a fork server that has ended. This process is the fork's parent then. If the
        fork was reaped already, its exit code counts as 1."""
        loop = asyncio.get_running_loop()

        def reap() -> None:
            loop.remove_reader(end)
            os.close(end)
            try:
                _, status = os.waitpid(self.pid, 0)
                self.ended(os.waitstatus_to_exitcode(status))
            except ChildProcessError:
                self.ended(_UNKNOWN)

        try:
            end = os.pidfd_open(self.pid)
            loop.add_reader(end, reap)
        except ProcessLookupError:
            self.ended(_UNKNOWN)


class ForkServer:
    """The launcher's connection to the fork server, a process of its own (`forkserver`)."""

    def __init__(self, process: Process, end: socket.socket, line: Control, log: Path) -> None:
        self._process, self._end, self._line, self._log = process, end, line, log
        self._forks: dict[int, Fork] = {}
        self._forked: asyncio.Future[Fork] | None = None
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, log: Path) -> ForkServer:
        """Start a fork server that appends its errors to `log`. If it ends before its forks, this process becomes their
        parent."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await _execute(_FORK_SERVER, theirs, log)
        return cls(process, ours.dup(), await Control.over(ours), log)

    async def fork(self, control: socket.socket, log: Path) -> Fork:
        """Fork one peer, which gets a copy of `control` and appends its output to `log`; one call at a time. Raises
        SpawnError when the fork server has `ended`, or ends before it has forked; ForkServerKilled if a signal ended it
        amid the fork."""
        if self.ended:
            raise SpawnError(self._is_gone)
        self._forked = asyncio.get_running_loop().create_future()
        with contextlib.suppress(OSError):  # `_gone` reports it
            socket.send_fds(self._end, [os.fsencode(log)], [control.fileno()])
        return await self._forked

    async def close(self) -> None:
        """Kill the fork server, even a hung one, and wait for its end. All its forks must have ended."""
        self.kill()
        await self._listening

    @property
    def ended(self) -> bool:
        """Whether the fork server has ended."""
        return self._listening.done()

    async def _listen(self) -> None:
        while True:
            kind, content = await self._line.hear()
            if kind == "forked" and self._forked is not None:
                fork = self._forks[content] = Fork(content)
                self._forked.set_result(fork)
            elif kind == "ended":
                pid, code = content
                self._forks.pop(pid).ended(code)
            elif kind == "closed":
                code = await self._exit_code()  # from here on its forks are ours
                self._end.close()
                await self._line.close()
                return self._gone(code)

    async def _exit_code(self) -> int:
        try:
            async with asyncio.timeout(_END_S):
                return await self._process.wait()
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    @property
    def forking(self) -> bool:
        """Whether a fork is under way."""
        return self._forked is not None and not self._forked.done()

    def kill(self) -> None:
        """Kill the fork server; its forks continue."""
        self._process.kill()

    def _gone(self, code: int) -> None:
        for fork in self._forks.values():
            fork.adopt()
        self._forks.clear()
        if self._forked is not None and not self._forked.done():
            error = ForkServerKilled if code < 0 else SpawnError
            self._forked.set_exception(error(self._is_gone))

    @property
    def _is_gone(self) -> str:
        return f"the process that forks the peers is gone; see {self._log}"
