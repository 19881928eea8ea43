"""Pipes: streams of bytes between two peers that cannot be dialled. A third peer, the relay, carries them
(`protocols/relay`).

The transport of a peer that cannot be dialled makes them. It speaks at one end, as over any connection to the other
peer, and encrypts if it encrypts other connections; the relay's code reads and writes at the other end, the `Pipe`. So
a relay can neither read the bytes nor change them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .wire.frames import Buffer

if TYPE_CHECKING:
    from .transport import PeerId


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
    """One end of a pipe, for the relay's code: it reads the bytes that the transport sends, and writes those that the
    transport is to receive."""

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


class Pipes(Protocol):
    """The pipes of one transport."""

    wanted: Callable[[PeerId, Pipe], None]
    """The transport calls this with a peer that cannot be dialled and a new pipe when it has frames for that peer. The
    callee connects the pipe, through a relay, to an `inlet` of that peer, in both directions. If it cannot, it closes
    the pipe; the transport then calls again with a new pipe, after ever longer pauses."""

    def inlet(self) -> Pipe:
        """A new pipe into this peer's own inbox. The caller writes into it the bytes that come through a relay from
        another peer's pipe, and carries the bytes that come out of it back."""
        ...
