"""What a shaped transport knows of the way to one peer and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..wire.frames import Buffer, Lane, PeerMisbehaved, decode, message


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class ShapedTo:
    """What the sender shapes its link to: bytes a second that it sends, one-way latency and jitter in seconds."""

    up_Bps: float
    latency_s: float
    jitter_s: float


_NOT_SHAPED = ShapedTo(math.inf, 0.0, 0.0)


@dataclass(slots=True)
class Way:
    """`told`: whether the other end knows of our link. The times are those of the frame before, which none overtakes:
    when it left, when its last byte came to our down-link, and when it was through that."""

    theirs: ShapedTo = _NOT_SHAPED
    told: bool = False
    left_s: float = 0.0
    came_s: float = 0.0
    through_s: float = 0.0

    def learn(self, header: Buffer) -> None:
        """If this tells what its sender's link is shaped to: whatever it says, only its own frames come at other
        times. Whether it is well-formed is for the endpoint to judge."""
        try:
            said = decode(header, 0).message
        except PeerMisbehaved:
            return
        if isinstance(said, ShapedTo) and said.up_Bps > 0 and said.latency_s >= 0 and said.jitter_s >= 0:
            self.theirs = said


def behind(when: float, before: float) -> float:
    """Then, but later than what was before it."""
    return when if when > before else math.nextafter(before, math.inf)
