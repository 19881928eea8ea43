"""A shaped transport's knowledge about the connection to one peer, in both directions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..wire.frames import Buffer, Lane, PeerMisbehaved, decode, message


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class ShapedTo:
    """Sent to each peer that the sender connects to: the sender's own link. `up_Bps`: bytes a second that it sends;
    `latency_s`: one-way; `jitter_s`: each message takes up to this much longer, drawn uniformly from 0 on."""

    up_Bps: float
    latency_s: float
    jitter_s: float


_NOT_SHAPED = ShapedTo(math.inf, 0.0, 0.0)


@dataclass(slots=True)
class Way:
    """The connection to one peer, in both directions. `theirs`: the other end's link. `told`: whether the other end has
    been sent this peer's link. The times may lie in the future, and a later frame gets no earlier time. `left_s`: the
    latest frame to the peer leaves here. `came_s`: the last byte of the latest frame from the peer reaches the
    down-link. `through_s`: the down-link has served the latest frame that has entered it, which may be an earlier
    one."""

    theirs: ShapedTo = _NOT_SHAPED
    told: bool = False
    left_s: float = 0.0
    came_s: float = 0.0
    through_s: float = 0.0

    def learn(self, header: Buffer) -> None:
        """If `header` is that of a `ShapedTo` with a bandwidth above 0 and no negative times, note the link that it
        describes; else do nothing. A false `ShapedTo` delays only its own sender's frames. The endpoint checks whether
        other frames are well-formed."""
        try:
            said = decode(header, 0).message
        except PeerMisbehaved:
            return
        if isinstance(said, ShapedTo) and said.up_Bps > 0 and said.latency_s >= 0 and said.jitter_s >= 0:
            self.theirs = said


def behind(when: float, before: float) -> float:
    """`when` if it is later than `before`, else the next larger float after `before`; both are times in seconds."""
    return when if when > before else math.nextafter(before, math.inf)
