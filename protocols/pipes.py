"""Pipes: streams of bytes between two peers that cannot be dialled. A third peer, the relay, carries them
(`protocols/relay`).

The transport of a peer that cannot be dialled makes them. It speaks at one end, as over any connection to the other
peer, and encrypts if it encrypts other connections. At the other end, the `Pipe`, this peer's own code in
`protocols/relay` reads and writes the bytes that a relay carries. So a relay can neither read the bytes nor change them
unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .wire.frames import Buffer


@dataclass(frozen=True, slots=True)
class PipeUser:
    """The functions that a pipe calls, on the event loop's thread and never from inside a call of the pipe.

    arrived: bytes came out of the pipe. drained: all written bytes that had to wait were taken. ended: the other end is
    closed; nothing is called after this.
    """

    arrived: Callable[[bytes], None]
    drained: Callable[[], None]
    ended: Callable[[], None]


class Pipe(Protocol):
    """The end of a pipe that is not the transport's. It gives the bytes that the transport sends to the other peer, and
    takes those that come from that peer."""

    @property
    def waiting_bytes(self) -> int:
        """Written bytes that the other end has not taken yet."""
        ...

    def begin(self, user: PipeUser) -> None:
        """Begin to read, and call the functions of `user` from now on. Called once."""
        ...

    def write(self, data: Buffer) -> None:
        """Put bytes into the pipe. If the pipe has ended, they are dropped."""
        ...

    def hold(self, held: bool) -> None:
        """Stop reading while `held` is true; read on when it is false."""
        ...

    def close(self) -> None:
        """End the pipe: the functions of `PipeUser` are called no more. A second call does nothing."""
        ...
