"""How a launcher spawns its peers: those of a script as new processes, those of a task as forks of the zygote.

Forks are for Linux: elsewhere system libraries may have threads of their own by then, and each peer is a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Protocol

from .control import CONTROL_VARIABLE, Control

_ALONE = [sys.executable, "-m", "samovar.peers.process"]
"""The command of one peer of a task, where it is not forked."""
_ZYGOTE = [sys.executable, "-m", "samovar.peers.zygote"]


class SpawnError(Exception):
    """No peer can be spawned. One line, for the user."""


class Process(Protocol):
    """A peer process: what `asyncio.subprocess.Process` offers of it."""

    @property
    def returncode(self) -> int | None:
        """Below zero: the signal that ended it."""

    async def wait(self) -> int: ...

    def send_signal(self, signal: int) -> None: ...

    def kill(self) -> None: ...


class Spawner:
    """Spawns peers of a script by its `command`, or, where that is None, of a task. One for a run."""

    def __init__(self, command: list[str] | None) -> None:
        self._command = _ALONE if command is None and sys.platform != "linux" else command
        self._zygote: Zygote | None = None
        self._stopped = False

    async def spawn(self, control: socket.socket, log: Path) -> Process:
        """A new process that has `control` as its control line and says what it says in `log`. Raises SpawnError."""
        if self._command is not None:
            return await _execute(self._command, control, log)
        if self._zygote is None:
            self._zygote = await Zygote.start(log)
            if self._stopped:
                self._zygote.kill()
        return await self._zygote.fork(control, log)

    def stop(self) -> None:
        """Spawn no more: what waits for a fork fails."""
        self._stopped = True
        if self._zygote is not None and self._zygote.forking:
            self._zygote.kill()

    @property
    def failure(self) -> str:
        """What became of all peers at once, if anything did."""
        return "" if self._zygote is None else self._zygote.failure

    async def close(self) -> None:
        if self._zygote is not None:
            await self._zygote.close()


async def _execute(command: list[str], control: socket.socket, log: Path) -> asyncio.subprocess.Process:
    """`command` as a process of its own session: Ctrl-C is for the launcher, which stops its peers in good order."""
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


class Zygote:
    """The launcher's side of the zygote."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket, line: Control, log: Path) -> None:
        self._process, self._end, self._line, self._log = process, end, line, log
        self._forks: dict[int, Fork] = {}
        self._forked: asyncio.Future[Fork] | None = None
        self._listening = asyncio.create_task(self._listen())
        self.failure = ""

    @classmethod
    async def start(cls, log: Path) -> Zygote:
        """What it has to complain of goes to `log`."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await _execute(_ZYGOTE, theirs, log)
        return cls(process, ours.dup(), await Control.over(ours), log)

    async def fork(self, control: socket.socket, log: Path) -> Fork:
        """One at a time. Raises SpawnError when the zygote is gone."""
        self._forked = asyncio.get_running_loop().create_future()
        with contextlib.suppress(ConnectionError):  # `_gone` tells
            socket.send_fds(self._end, [os.fsencode(log)], [control.fileno()])
        if self._listening.done():
            self._gone()
        return await self._forked

    async def close(self) -> None:
        """End it, even if it stands still; no fork may be left."""
        self._end.close()
        await self._line.close()
        await self._listening
        self.kill()
        await self._process.wait()

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
                return self._gone()

    @property
    def forking(self) -> bool:
        """Whether somebody waits for a fork."""
        return self._forked is not None and not self._forked.done()

    def kill(self) -> None:
        """End it at once, and its forks with it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _gone(self) -> None:
        """Nobody would tell how its forks end, so they end now."""
        failure = f"the process that forks the peers is gone; see {self._log}"
        if self._forks:
            self.failure = failure
        for fork in self._forks.values():
            fork.kill()
            fork.ended(-signal.SIGKILL)
        self._forks.clear()
        if self._forked is not None and not self._forked.done():
            self._forked.set_exception(SpawnError(failure))
