"""A launcher's view of one of its peer processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings.settings import Settings
from .control import Control, Orders
from .spawn import Process
from .spec import log_path


@dataclass(slots=True)
class Spawned:
    """A peer process. `member`: its id and address, once it is up; `inside`: it is a member of the run; `ended`: its
    last report, finished and accuracy; `failure`: why it failed."""

    orders: Orders
    process: Process | None = None
    control: Control | None = None
    member: dict[str, str] | None = None
    inside: bool = False
    ended: dict[str, Any] | None = None
    exit_code: int | None = None
    exited_s: float = 0.0
    """When the process exited: seconds since all peers were up."""
    failure: str = ""
    error: str = ""
    """The same as a line for the user, with the peer's name."""
    cut_off: bool = False
    """It failed because it lost others that it needed."""
    lives: int = 0
    keeping: bool = False
    """Whether it is writing a checkpoint; `kept_s`: when `keeping` last changed, by the loop's clock."""
    kept_s: float = 0.0
    _asked: asyncio.Future[dict[str, Any] | None] | None = None

    @property
    def name(self) -> str:
        return self.orders.name

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def done(self) -> bool:
        """Whether it finished by itself and was not ended by a signal or an error."""
        return self.ended is not None and (self.ended["finished"] or not self.exit_code)

    def begin(self, process: Process, control: Control) -> None:
        """Reset this object for a new process of the peer."""
        self.process, self.control = process, control
        self.member, self.inside, self.ended, self.exit_code = None, False, None, None
        self.failure, self.error, self.cut_off, self.keeping = "", "", False, False
        self.lives += 1

    def tell(self, kind: str, content: Any = None) -> None:
        if self.control is not None:
            self.control.tell(kind, content)

    async def ask(self, kind: str, content: Any) -> dict[str, Any] | None:
        """The answer of this peer; None when it ends meanwhile."""
        self._asked = asyncio.get_running_loop().create_future()
        self.tell(kind, content)
        return await self._asked

    def answered(self, answer: dict[str, Any] | None) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(answer)

    def signal(self, number: signal.Signals) -> None:
        if self.running and self.process is not None:
            self.process.send_signal(number)

    @property
    def killed(self) -> str:
        """By which signal it was killed. Libraries abort a process, without a reason, when memory runs out."""
        number = -(self.exit_code or 0)
        limit = Settings.from_json(self.orders.settings).memory_limit if number == signal.SIGABRT else None
        perhaps = "" if limit is None else f", perhaps at its memory limit of {limit}"
        return f"killed by signal {number}{perhaps}"

    def death(self) -> str:
        """How its process ended, for people."""
        code, log = self.exit_code or 0, log_path(Path(self.orders.folder), self.name)
        if code < 0:
            return f"was {self.killed}" + (f", {self.lives} times" if self.lives > 1 else "")
        if code == 0:
            return f"ended before it took part, see {log}"
        return f"exited with {code}: {_last_line(log)}; see {log}"


def why_none_is_done(peers: Sequence[Spawned]) -> str:
    """Why none of `peers` finished: the first that failed by itself, and one that could not continue without it."""
    alone = sorted((peer for peer in peers if not peer.cut_off), key=lambda peer: peer.exited_s)
    causes = [peer.error or f"peer {peer.name} {peer.death()}" for peer in alone]
    cut_off = [peer.error for peer in peers if peer.cut_off]
    return "; ".join([*causes[:1], *cut_off[:1]])


def _last_line(log: Path) -> str:
    """The last line of a process's output: of a traceback, the error."""
    try:
        text = log.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return f"{lines[-1]:.200}" if lines else "it said nothing"
