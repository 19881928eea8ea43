"""A tap: a non-blocking socket with an edge-triggered descriptor, served from an asyncio loop without missing an edge.

ZeroMQ's descriptor fires once when something changes, and every touch of the socket may swallow that (Z11). So the
socket is emptied whenever it fires, a bounded number of messages a turn, and looked at again after all that touches it.
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
"""To one peer: more than a window holds, however small they are."""


class Origin:
    """Where a message came from. `told`: what its connection is known by, looked up when it is asked for."""

    __slots__ = ("_told",)

    def __init__(self, told: Callable[[str], object]) -> None:
        self._told = told

    @property
    def user(self) -> str:
        """The key that its sender proved to have, if the connection is encrypted."""
        return str(self._told("User-Id"))  # Z15: the routing id may be chosen by anybody

    @property
    def address(self) -> str:
        """The host of its sender."""
        return str(self._told("Peer-Address"))

    @property
    def descriptor(self) -> int:
        """That of the connection."""
        return int(str(self._told("__fd")))


class Arrived(NamedTuple):
    """A message: its first few frames, how many it had, and where it came from, if the socket can tell."""

    frames: list[Buffer]
    total: int
    origin: Origin | None = None


class RawSocket(Protocol):
    """What a tap asks of a socket. Nothing here waits."""

    def fileno(self) -> int: ...

    def receive(self) -> Arrived | None:
        """The next message, of a socket that is ready for that; None if it has gone meanwhile."""
        ...

    def send(self, frames: Sequence[Buffer]) -> int:
        """0, or the errno that says why the message cannot go now."""
        ...

    def ready(self) -> tuple[bool, bool]:
        """Whether a message can be received, and sent, now."""
        ...

    def close(self, linger_ms: int) -> None: ...


class Tap:
    """`take` is given each message that arrives."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: RawSocket, take: Callable[[Arrived], object]) -> None:
        self._loop, self._socket, self._take = loop, socket, take
        self._backlog: deque[Sequence[Buffer]] = deque()
        self._due = self._closed = False
        self._fd = socket.fileno()
        loop.add_reader(self._fd, self.serve)
        self._serve_soon()  # what came before is not told

    def serve(self) -> None:
        """Take what has arrived and send what waits."""
        self._due = False
        for _ in range(_DRAIN_MAX):
            if self._closed or not self._socket.ready()[0]:
                break
            if (arrived := self._socket.receive()) is not None:
                self._take(arrived)
        else:
            self._serve_soon()
        if self._backlog:
            self._flush()

    def post(self, frames: Sequence[Buffer]) -> bool:
        """Send now or as soon as the socket takes it; False when too much waits already."""
        if self._closed or len(self._backlog) >= MESSAGES_MAX:
            return False
        self._backlog.append(frames)
        self._flush()
        return True

    def send(self, frames: Sequence[Buffer]) -> int:
        """Send now or not at all: 0, or the errno that says why not."""
        failed = errno.EHOSTUNREACH if self._closed else self._socket.send(frames)
        self._look()
        return failed

    def _flush(self) -> None:
        while self._backlog and self._socket.send(self._backlog[0]) == 0:
            self._backlog.popleft()
        self._look()

    def _look(self) -> None:
        if self._closed:
            return
        receivable, sendable = self._socket.ready()
        if receivable or (sendable and self._backlog):
            self._serve_soon()

    def _serve_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self.serve)

    def close(self, linger_ms: int = 0) -> None:
        """Stop. What waits here is dropped; what the socket has is given `linger_ms` to leave. Twice is harmless."""
        if not self._closed:
            self._closed = True
            self._backlog.clear()
            self._loop.remove_reader(self._fd)
            self._socket.close(linger_ms)
