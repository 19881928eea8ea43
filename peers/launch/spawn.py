"""How a launcher spawns its peers: those of a script as new processes, those of a task as forks of the zygote.

Only Linux forks. On other systems, system libraries may have started threads by then, and each peer is a new process.
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

from .control import CONTROL_VARIABLE, Control

_ALONE = [sys.executable, "-m", "samovar.peers.launch.process"]
"""The command of one peer of a task, where it is not forked."""
_ZYGOTE = [sys.executable, "-m", "samovar.peers.launch.forkserver"]
_UNKNOWN = 1
"""The exit code for a process that was reaped before its code could be read."""
_PR_SET_CHILD_SUBREAPER = 36
_END_S = 2.0
"""How long a zygote that has closed its line may take to end."""


class SpawnError(Exception):
    """No peer can be spawned. One line, for the user."""


class ZygoteKilled(SpawnError):
    """The zygote was killed amid a fork."""


class Process(Protocol):
    """A peer process, with the interface of `asyncio.subprocess.Process`."""

    @property
    def returncode(self) -> int | None:
        """The exit code; -N: ended by signal N."""

    async def wait(self) -> int: ...

    def send_signal(self, signal: int) -> None: ...

    def kill(self) -> None: ...


class Spawner:
    """Spawns the peers of one run: of a script by its `command`, or of a task where that is None."""

    def __init__(self, command: list[str] | None) -> None:
        self._command = _ALONE if command is None and sys.platform != "linux" else command
        self._zygote: Zygote | None = None
        self._stopped = False
        self._one_at_a_time = asyncio.Lock()

    async def spawn(self, control: socket.socket, log: Path) -> Process:
        """Spawn a process with `control` as its control line and its output in `log`. Raises SpawnError; ZygoteKilled
        when the caller may try again with another line."""
        if self._command is not None:
            return await _execute(self._command, control, log)
        async with self._one_at_a_time:
            if self._zygote is None or self._zygote.ended:
                self._zygote = await Zygote.start(log)
                if self._stopped:
                    self._zygote.kill()
            return await self._zygote.fork(control, log)

    def stop(self) -> None:
        """Spawn no more processes; a fork under way fails."""
        self._stopped = True
        if self._zygote is not None and self._zygote.forking:
            self._zygote.kill()

    async def close(self) -> None:
        if self._zygote is not None:
            await self._zygote.close()


async def _execute(command: list[str], control: socket.socket, log: Path) -> asyncio.subprocess.Process:
    """Run `command` in a session of its own: Ctrl-C reaches only the launcher, which stops its peers in good order."""
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # Unbuffered, so that what a script prints can be followed in its log, and is there when it is killed.
            env={**os.environ, "PYTHONUNBUFFERED": "1", CONTROL_VARIABLE: str(control.fileno())},
            pass_fds=[control.fileno()],
            start_new_session=True,
        )


class Fork:
    """A process that the zygote has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, signal: int) -> None:
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        self._ended.set_result(code)

    def adopt(self) -> None:
        """Take over from a zygote that has ended: this process is the parent now, and waits for the fork itself."""
        loop = asyncio.get_running_loop()

        def bury() -> None:
            loop.remove_reader(end)
            os.close(end)
            try:
                _, status = os.waitpid(self.pid, 0)
                self.ended(os.waitstatus_to_exitcode(status))
            except ChildProcessError:
                self.ended(_UNKNOWN)

        try:
            end = os.pidfd_open(self.pid)
            loop.add_reader(end, bury)
        except ProcessLookupError:
            self.ended(_UNKNOWN)


class Zygote:
    """The launcher's side of the zygote."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket, line: Control, log: Path) -> None:
        self._process, self._end, self._line, self._log = process, end, line, log
        self._forks: dict[int, Fork] = {}
        self._forked: asyncio.Future[Fork] | None = None
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, log: Path) -> Zygote:
        """Start a zygote that writes its errors to `log`. This process becomes the parent of its forks, should the
        zygote end before them."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await _execute(_ZYGOTE, theirs, log)
        return cls(process, ours.dup(), await Control.over(ours), log)

    async def fork(self, control: socket.socket, log: Path) -> Fork:
        """Fork one peer; one call at a time. Raises SpawnError when the zygote is gone."""
        self._forked = asyncio.get_running_loop().create_future()
        with contextlib.suppress(OSError):  # `_gone` reports it
            socket.send_fds(self._end, [os.fsencode(log)], [control.fileno()])
        return await self._forked

    async def close(self) -> None:
        """Kill the zygote, even a hung one. All its forks must have ended."""
        self.kill()
        await self._listening

    @property
    def ended(self) -> bool:
        """Whether the zygote has ended."""
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
        """Kill the zygote; its forks continue."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _gone(self, code: int) -> None:
        for fork in self._forks.values():
            fork.adopt()
        self._forks.clear()
        if self._forked is not None and not self._forked.done():
            error = ZygoteKilled if code < 0 else SpawnError
            self._forked.set_exception(error(f"the process that forks the peers is gone; see {self._log}"))
