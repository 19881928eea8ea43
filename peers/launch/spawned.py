"""A launcher's state of one of its peer processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .control import Control, Orders
from .spawn import Process
from .spec import log_path


@dataclass(slots=True)
class Spawned:
    """A peer process. `process`, `control`: None before its first start. `member`: its id and address, None before it
    is up; `inside`: it is a member of the run; `ended`: its last message, of a task's peer the fields of `loop.Ended`,
    of a script's `finished`, `metrics`, `scales` and `forgot`, None before it; `failure`: why it failed, in its own
    words, or how its process ended, "": it has not failed; `lives`: how often it was started."""

    orders: Orders
    memory_limit: str | None = None
    process: Process | None = None
    control: Control | None = None
    member: dict[str, str] | None = None
    inside: bool = False
    ended: dict[str, Any] | None = None
    exit_code: int | None = None
    exited_s: float = 0.0
    """The time at which the process exited, in seconds since all peers were up."""
    failure: str = ""
    error: str = ""
    """The failure as one line for the user, with the peer's name; "": it has not failed."""
    cut_off: bool = False
    """Whether it failed because it lost contact with peers that it needed."""
    lives: int = 0
    keeping: bool = False
    """Whether it is writing a checkpoint. `kept_s`: when `keeping` last changed, or `ended` came, on the event loop's
    clock."""
    kept_s: float = 0.0
    heard_s: float = 0.0
    """The time of its last message, on the same clock."""
    grace_s: float | None = None
    """Seconds after which it was killed because it had not ended since it was stopped; None: it was not."""
    _asked: dict[int, asyncio.Future[dict[str, Any] | None]] = field(default_factory=dict)
    """Requests that the peer has not answered yet, by number."""
    _asks: int = 0

    @property
    def name(self) -> str:
        """The peer's display name."""
        return self.orders.name

    @property
    def running(self) -> bool:
        """Whether its process has begun and not ended."""
        return self.process is not None and self.process.returncode is None

    @property
    def finished(self) -> bool:
        """Whether it took part until the run was over for it, however its process ended afterwards."""
        return self.ended is not None and bool(self.ended["finished"])

    @property
    def done(self) -> bool:
        """Whether the peer has told its end (`ended`), and either finished the run or its process did not exit with a
        failure."""
        return self.ended is not None and (self.finished or not self.exit_code)

    @property
    def late(self) -> bool:
        """Whether it left the run in good order, and its process was killed because it did not end after that."""
        return self.ended is not None and self.grace_s is not None

    def begin(self, process: Process, control: Control) -> None:
        """Take over a new process of the peer, and forget the state of the one before."""
        self.process, self.control = process, control
        self.member, self.inside, self.ended, self.exit_code = None, False, None, None
        self.failure, self.error, self.cut_off, self.keeping = "", "", False, False
        self.lives += 1

    def tell(self, kind: str, content: Any = None) -> None:
        """Send a message to its process (`Control.tell`); nothing before it has begun."""
        if self.control is not None:
            self.control.tell(kind, content)

    async def ask(self, kind: str, content: Any) -> dict[str, Any] | None:
        """Send a request to this peer; returns its answer, or None when the peer ends meanwhile."""
        self._asks += 1
        ask, answer = self._asks, asyncio.get_running_loop().create_future()
        self._asked[ask] = answer
        self.tell(kind, [ask, content])
        try:
            answered: dict[str, Any] | None = await answer
            return answered
        finally:  # an answer that comes later is dropped
            del self._asked[ask]

    def answered(self, ask: int, answer: dict[str, Any]) -> None:
        """Hand the peer's answer to the call of `ask` that sent the request with number `ask`. An answer for which none
        waits is dropped."""
        if (asked := self._asked.get(ask)) is not None and not asked.done():
            asked.set_result(answer)

    def hung_up(self) -> None:
        """Handle the end of its control line: the peer is no member any more, and its open requests get no answer."""
        self.inside = False
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if that is running."""
        if self.running and self.process is not None:
            self.process.send_signal(number)

    @property
    def killed(self) -> str:
        """Why its process was killed, in words: by a signal, or because it was stopped and did not end. Meaningful only
        if it was killed. For SIGABRT the text names the memory limit, because libraries abort a process without a
        reason when memory runs out."""
        if self.grace_s is not None:
            return f"stopped, and killed as it had not ended {self.grace_s:g} s later"
        number = -(self.exit_code or 0)
        if number == signal.SIGABRT and self.memory_limit is not None:
            return f"killed by signal {number}, perhaps at its memory limit of {self.memory_limit}"
        return f"killed by signal {number}"

    def death(self) -> str:
        """How its process ended, in words that follow the peer's name. To be called after its end."""
        code, log = self.exit_code or 0, log_path(Path(self.orders.folder), self.name)
        if code < 0:
            return f"was {self.killed}" + (f", {self.lives} times" if self.lives > 1 else "")
        if code == 0:
            return f"ended before it took part, see {log}"
        told, whole = _last_line(log)
        return f"exited with {code}: {told}" + ("" if whole else f"; see {log}")


def failed_afterwards(peers: Sequence[Spawned]) -> list[str]:
    """A line for each of `peers` that had finished the run, and whose process, a script's, then failed by itself."""
    failed = (peer for peer in peers if peer.finished and (peer.exit_code or 0) > 0 and not peer.late)
    return [f"peer {peer.name} had left the run, and then its script {peer.death()}" for peer in failed]


def why_none_is_done(peers: Sequence[Spawned]) -> str:
    """The reason why none of `peers` finished: the error of the first that failed by itself, and that of one that could
    not continue without it."""
    alone = sorted((peer for peer in peers if not peer.cut_off), key=lambda peer: peer.exited_s)
    causes = [peer.error or f"peer {peer.name} {peer.death()}" for peer in alone]
    cut_off = [peer.error for peer in peers if peer.cut_off]
    return "; ".join([*causes[:1], *cut_off[:1]])


def _last_line(log: Path) -> tuple[str, bool]:
    """The last line of a process's output, which is the error if the output ends with a traceback. One of the library's
    own is whole, as it may end with a command. Also whether that is all that the log says."""
    try:
        text = log.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError as error:
        return f"its log cannot be read ({error.strerror})", False
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    own = last.startswith("samovar: ")
    return (last, len(lines) == 1) if own else (f"{last:.200}", False)
