"""The messages by which streams are carried. A stream joins a pipe of one peer to a pipe of another, over the links of
both to a relay. Each of the two links has a number for it, from whoever opened the stream on that link: even numbers
from a peer at the end of a stream, odd ones from a relay."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport import PeerId
from ..wire.frames import message

RELAY = "relay"
"""The name of the channel, the same whatever conversation a run has."""
PIECE_BYTES_MAX = 16 * 1024
WINDOW_BYTES = 256 * 1024
"""Bytes of one stream and direction that may be under way, from one end to the other."""


@message("relay")
@dataclass(frozen=True, slots=True)
class Carry:
    """Asks a relay to carry a new stream to the peer `to`."""

    stream: int
    to: PeerId


@message("relay")
@dataclass(frozen=True, slots=True)
class Called:
    """A relay tells that `caller` has begun a stream to the receiver."""

    stream: int
    caller: PeerId


@message("relay", payload_max=PIECE_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Piece:
    """Payload: the next bytes of the stream. Pieces are control messages, which wait behind no vector: what is carried
    has its own congestion control, at its two ends, and heartbeats among it."""

    stream: int


@message("relay")
@dataclass(frozen=True, slots=True)
class Taken:
    """The far end has taken `total` bytes out of the stream since it began."""

    stream: int
    total: int


@message("relay")
@dataclass(frozen=True, slots=True)
class Over:
    """The stream has ended, and why."""

    stream: int
    why: str
