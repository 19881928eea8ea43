"""The messages by which a relay carries streams. A stream joins a pipe of one peer to a pipe of another, over the link
of each peer to the relay. On each of the two links the stream has a number, given by the side that opens it there: an
even number if that is a peer at an end of the stream, an odd one if it is the relay."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport import PeerId
from ..wire.frames import message

RELAY = "relay"
"""The name of the channel, the same whatever conversation a run has."""
PIECE_BYTES_MAX = 16 * 1024
WINDOW_BYTES = 256 * 1024
"""The most bytes of one stream and direction that may be under way from one end to the other."""


@message("relay")
@dataclass(frozen=True, slots=True)
class Carry:
    """Asks a relay to carry a new stream to the peer `to`."""

    stream: int
    to: PeerId


@message("relay")
@dataclass(frozen=True, slots=True)
class Called:
    """From a relay to the peer at the far end: `caller` has begun a stream to it, which has the number `stream` on this
    link. The peer refuses it by Over; to take it, it sends nothing. The peer cannot check `caller`: the relay alone
    says so."""

    stream: int
    caller: PeerId


@message("relay", payload_max=PIECE_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Piece:
    """Payload: the next bytes of the stream. Pieces are control messages, so a link does not have them wait behind
    vectors (a budget does: `shaping.send_queues`): the carried connection has its own congestion control at its two
    ends, and its heartbeats are among these bytes."""

    stream: int


@message("relay")
@dataclass(frozen=True, slots=True)
class Taken:
    """From an end of a stream to the relay, and from there to the other end: the end that sent this has taken `total`
    bytes out of the stream since it began."""

    stream: int
    total: int


@message("relay")
@dataclass(frozen=True, slots=True)
class Over:
    """From the relay or from an end: the stream has ended, or is refused; `why`: the reason."""

    stream: int
    why: str
