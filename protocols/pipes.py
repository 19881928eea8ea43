"""Pipes: streams of bytes between two peers that cannot be dialled, for a third peer to carry (`relay`).

The transport of a peer that cannot be dialled makes them: one end is the transport's, which speaks to the other peer as
over any connection, encrypted end to end where the transport is encrypted; the other end is here. Nobody who carries
the bytes can read or change them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .wire.frames import Buffer


@dataclass(frozen=True, slots=True)
class PipeUser:
    """The functions that a pipe calls, on the event loop's thread and never from inside a call of the pipe.

    arrived: bytes came out of the pipe. drained: written bytes that waited have gone into it. ended: the other end is
    closed; nothing is called after this.
    """

    arrived: Callable[[bytes], None]
    drained: Callable[[], None]
    ended: Callable[[], None]


class Pipe(Protocol):
    """This side's end of a pipe."""

    @property
    def waiting_bytes(self) -> int:
        """Written bytes that the other end has not taken yet."""
        ...

    def begin(self, user: PipeUser) -> None:
        """Begin to read. Called once."""
        ...

    def write(self, data: Buffer) -> None:
        """Put bytes into the pipe, or drop them if it has ended."""
        ...

    def hold(self, held: bool) -> None:
        """Read no more while `held`."""
        ...

    def close(self) -> None:
        """End the pipe: `PipeUser` is called no more. A second call is harmless."""
        ...
