"""Readings: a rate limit on how often each peer may fetch this peer's state."""

from __future__ import annotations

import asyncio

from ..transport import PeerId
from ..wire.frames import PeerMisbehaved

_READINGS, _AT_ONCE = 16, 64
"""How many states one peer may fetch in an interval, and at once. A peer that catches up fetches one, and some more
when the others commit rounds meanwhile."""
_READERS_MAX = 1024
"""The most peers that are remembered. A further one takes over the entry of the peer that has fetched least, with its
count. So a peer that uses many keys fetches no more than this many peers may."""


class Readings:
    """One donor's rate limits, for all peers that fetch its state. `interval_s`: the interval of the limits, in
    seconds."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._read: dict[PeerId, tuple[float, float]] = {}
        """For each peer: states read, less those forgiven since; and when this was computed, on the loop's clock."""

    def read(self, peer: PeerId, share: float) -> None:
        """Note that `peer` fetches the fraction `share` of a state. Raises PeerMisbehaved, and notes nothing, when it
        would have fetched more than 64 states, of which 16 are forgiven in each interval."""
        now = asyncio.get_running_loop().time()
        place = peer
        if peer not in self._read and len(self._read) >= _READERS_MAX:
            place = min(self._read, key=lambda one: self._states(one, now))
        states = self._states(place, now)
        if states + share > _AT_ONCE:
            raise PeerMisbehaved("asked for the state over and over again")
        self._read.pop(place, None)
        self._read[peer] = states + share, now

    def _states(self, peer: PeerId, now_s: float) -> float:
        states, at_s = self._read.get(peer, (0.0, now_s))
        return max(0.0, states - (now_s - at_s) / self._interval_s * _READINGS)
