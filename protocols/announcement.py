"""The announcement: a message that a peer that cannot be dialled sends on each connection that it makes, as soon as it
is connected; only messages that have waited for the connection may go before it. It tells the receiver on which
connection to answer that peer, even before either has another message for the other."""

from __future__ import annotations

from dataclasses import dataclass

from .wire.frames import Lane, encode, message


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class Here:
    """The sender can be reached by the connection on which this arrives, and a transport learns that by the arrival
    alone. The endpoint drops the message: it belongs to no link. It has no fields and no payload."""


def announcement() -> bytes:
    """The header frame of the announcement, the same for every peer. Its payload frame is empty."""
    return encode(Here(), 0, incarnation=0, towards=0, seq=0)
