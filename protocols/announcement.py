"""The announcement of a connection by a peer that cannot be dialled: whoever gets it knows where to answer, also when
the two have nothing else to say yet."""

from __future__ import annotations

from dataclasses import dataclass

from .wire.frames import Lane, encode, message


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class Here:
    """The sender answers to what comes by this connection. For transports only: to a link it is nothing."""


def announcement() -> bytes:
    """The header frame of the announcement, which has no payload."""
    return encode(Here(), 0, incarnation=0, towards=0, seq=0)
