"""A shaped transport's knowledge of the connection to one peer and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..wire.frames import Buffer, Lane, PeerMisbehaved, decode, message


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class ShapedTo:
    """The sender's link: `up_Bps` in bytes a second that it sends, one-way latency and jitter in seconds."""

    up_Bps: float
    latency_s: float
    jitter_s: float


_NOT_SHAPED = ShapedTo(math.inf, 0.0, 0.0)


@dataclass(slots=True)
class Way:
    """`theirs`: the other end's link. `told`: whether the other end knows of this peer's link. The times are those of
    the previous frame, which no later frame overtakes: when it left, when its last byte reached the down-link, and when
    the down-link had served it."""

    theirs: ShapedTo = _NOT_SHAPED
    told: bool = False
    left_s: float = 0.0
    came_s: float = 0.0
    through_s: float = 0.0

    def learn(self, header: Buffer) -> None:
        """Take over the sender's link if the frame is a `ShapedTo`. A false one delays only its own sender's frames.
        Whether the frame is well-formed is checked by the endpoint."""
        try:
            said = decode(header, 0).message
        except PeerMisbehaved:
            return
        if isinstance(said, ShapedTo) and said.up_Bps > 0 and said.latency_s >= 0 and said.jitter_s >= 0:
            self.theirs = said


def behind(when: float, before: float) -> float:
    """The time `when`, or just after `before` if that is not earlier."""
    return when if when > before else math.nextafter(before, math.inf)
