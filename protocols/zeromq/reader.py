"""A tap: it reads and writes a non-blocking ZeroMQ socket from an asyncio loop, although the socket's descriptor
reports each event only once.

ZeroMQ's descriptor fires once per change of state, and any call on the socket may consume that event (Z11). So the
socket is drained whenever the descriptor fires, a bounded number of messages at a time, and checked again after every
call on it.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..wire.frames import Buffer

_DRAIN_MAX = 128
MESSAGES_MAX = 1 << 18
"""The most messages that wait for one peer: more than a link's window holds, however small the messages are."""


class Origin:
    """The connection that a message came by. Each property is looked up, by the function `told`, whenever it is
    read."""

    __slots__ = ("_told",)

    def __init__(self, told: Callable[[str], object]) -> None:
        self._told = told

    @property
    def user(self) -> str:
        """The public key that the sender has proved to own, in hexadecimal. Only of an encrypted connection."""
        return str(self._told("User-Id"))  # Z15: any caller may choose its routing id freely

    @property
    def address(self) -> str:
        """The host of the sender, without a port."""
        return str(self._told("Peer-Address"))

    @property
    def descriptor(self) -> int:
        """The file descriptor of the connection."""
        return int(str(self._told("__fd")))


class Arrived(NamedTuple):
    """A received message. `frames`: its first few frames; `total`: the number of all its frames; `origin`: the
    connection that it came by; None: the socket cannot tell."""

    frames: list[Buffer]
    total: int
    origin: Origin | None = None


class RawSocket(Protocol):
    """The socket interface that a tap needs. No method blocks."""

    def fileno(self) -> int:
        """The descriptor that fires when the socket's state changes."""
        ...

    def receive(self) -> Arrived | None:
        """The next message; None: there is none now."""
        ...

    def send(self, frames: Sequence[Buffer]) -> int:
        """Send a message now. Returns 0, or the errno that tells why the message cannot be sent now."""
        ...

    def ready(self) -> tuple[bool, bool]:
        """Whether a message can be received now, and whether one can be sent."""
        ...

    def close(self, linger_ms: int) -> None:
        """Close the socket; messages in it get `linger_ms` milliseconds to be sent."""
        ...


class Tap:
    """Reads and writes one socket. `take` is called with each message that arrives. While `hold` is set, posted
    messages wait here: the socket would accept them even for a peer that is not connected (Z25)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: RawSocket,
        take: Callable[[Arrived], object],
        *,
        hold: bool = False,
    ) -> None:
        self._loop, self._socket, self._take = loop, socket, take
        self._backlog: deque[Sequence[Buffer]] = deque()
        self.hold = hold
        self._due = self._closed = False
        self._fd = socket.fileno()
        loop.add_reader(self._fd, self.serve)
        self._serve_soon()  # the descriptor does not fire for messages that came before

    def serve(self) -> None:
        """Receive the messages that have arrived, 128 at most (more in the loop's next iteration), pass each to `take`,
        and send those that wait."""
        self._due = False
        for _ in range(_DRAIN_MAX):
            if self._closed or (arrived := self._socket.receive()) is None:
                break
            self._take(arrived)
            if self._closed or not self._socket.ready()[0]:  # costs less than to try in vain
                break
        else:
            self._serve_soon()
        if self._backlog:
            self._flush()

    def post(self, frames: Sequence[Buffer]) -> bool:
        """Send a message behind those that wait, now or as soon as the socket can. Returns False, and drops it, when
        262,144 wait already, or the tap is closed."""
        if self._closed or len(self._backlog) >= MESSAGES_MAX:
            return False
        if self._backlog or self.hold or self._socket.send(frames) != 0:
            self._backlog.append(frames)
            self._flush()
        else:
            self._look()
        return True

    def send(self, frames: Sequence[Buffer]) -> int:
        """Send a message now or not at all. Returns 0, or the errno that tells why it was not sent."""
        failed = errno.EHOSTUNREACH if self._closed else self._socket.send(frames)
        self._look()
        return failed

    def _flush(self) -> None:
        while self._backlog and not self.hold and self._socket.send(self._backlog[0]) == 0:
            self._backlog.popleft()
        self._look()

    def _look(self) -> None:
        if self._closed:
            return
        receivable, sendable = self._socket.ready()
        if receivable or (sendable and self._backlog and not self.hold):
            self._serve_soon()

    def _serve_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self.serve)

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket. Messages that wait here are dropped; those in the socket get `linger_ms` milliseconds to be
        sent. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._backlog.clear()
            self._loop.remove_reader(self._fd)
            self._socket.close(linger_ms)
