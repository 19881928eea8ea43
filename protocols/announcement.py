"""The announcement: the first message on a connection that is made by a peer that cannot be dialled. It tells the
receiver on which connection to answer that peer, even before either has another message for the other."""

from __future__ import annotations

from dataclasses import dataclass

from .wire.frames import Lane, encode, message


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class Here:
    """The sender can be reached by the connection on which this arrives. Transports use it; links ignore it."""


def announcement() -> bytes:
    """The header frame of the announcement, which has no payload."""
    return encode(Here(), 0, incarnation=0, towards=0, seq=0)
