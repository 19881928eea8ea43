"""How a launcher spawns its peers: those of a script as new processes, those of a task as forks of the zygote.

Forks are for Linux, and for a launcher that nothing else is done in, as in the command's own process: elsewhere threads
that a fork would not have may hold locks, and each peer is a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Protocol

from .control import CONTROL_VARIABLE, Control
from .zygote import fork_zygote

_ALONE = [sys.executable, "-m", "samovar.peers.process"]
"""The command of one peer of a task, where it is not forked."""


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
    """Spawns peers of a script by its `command`, or, where that is None, of a task. One for a run, to be made before
    there is an event loop: the zygote is forked then. `log`: where that tells what it has to complain of.
    `own_process`: nothing else was ever done in this process."""

    def __init__(self, command: list[str] | None, log: Path, *, own_process: bool) -> None:
        forks = command is None and own_process and sys.platform == "linux" and threading.active_count() == 1
        self._zygote = Zygote(log) if forks else None
        self._command = command or _ALONE

    async def spawn(self, control: socket.socket, log: Path) -> Process:
        """A new process that has `control` as its control line and says what it says in `log`. Raises SpawnError."""
        if self._zygote is None:
            return await _execute(self._command, control, log)
        return await self._zygote.fork(control, log)

    def stop(self) -> None:
        """Spawn no more: what waits for a fork fails."""
        if self._zygote is not None and self._zygote.awaited:
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

    def __init__(self, log: Path) -> None:
        self._pid, self._end = fork_zygote(log)
        self._log = log
        self._line: Control | None = None
        self._listening: asyncio.Task[None] | None = None
        self._forks: dict[int, Fork] = {}
        self._forked: asyncio.Future[Fork] | None = None
        self.failure = ""

    async def fork(self, control: socket.socket, log: Path) -> Fork:
        """One at a time. Raises SpawnError when the zygote is gone."""
        self._forked = asyncio.get_running_loop().create_future()
        if self._listening is None:
            self._line = await Control.over(self._end.dup())
            self._listening = asyncio.create_task(self._listen(self._line))
        with contextlib.suppress(ConnectionError):  # `_gone` tells
            socket.send_fds(self._end, [os.fsencode(log)], [control.fileno()])
        if self._listening.done():
            self._gone()
        return await self._forked

    async def close(self) -> None:
        """Have it end; no fork may be left."""
        self._end.close()
        if self._line is not None and self._listening is not None:
            await self._line.close()
            await self._listening
        await asyncio.to_thread(os.waitpid, self._pid, 0)

    async def _listen(self, line: Control) -> None:
        while True:
            kind, content = await line.hear()
            if kind == "forked" and self._forked is not None:
                fork = self._forks[content] = Fork(content)
                self._forked.set_result(fork)
            elif kind == "ended":
                pid, code = content
                self._forks.pop(pid).ended(code)
            elif kind == "closed":
                return self._gone()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a fork, or nobody lives by it."""
        return not self._forks or (self._forked is not None and not self._forked.done())

    def kill(self) -> None:
        """End it at once, and its forks with it. Not once it is closed: its number may be another's by then."""
        os.kill(self._pid, signal.SIGKILL)

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
