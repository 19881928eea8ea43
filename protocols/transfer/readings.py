"""Readings: a rate limit on how often each peer may read the state."""

from __future__ import annotations

import asyncio

from ..transport import PeerId
from ..wire.frames import PeerMisbehaved

_READINGS, _AT_ONCE = 16, 64
"""States that one peer may read in an interval, and at once. A peer that catches up reads one, and some more when the
others commit rounds meanwhile."""
_READERS_MAX = 1024
"""The most peers that are remembered. One more takes over the entry, and its count, of the peer that has read least: so
a crowd of keys reads no more than this many peers."""


class Readings:
    """One donor's rate limits, for all peers that read its state."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._read: dict[PeerId, tuple[float, float]] = {}
        """For each peer: states read, less those forgiven since; and when this was computed, on the loop's clock."""

    def read(self, peer: PeerId, share: float) -> None:
        """Count that `peer` reads the fraction `share` of a state. Raises PeerMisbehaved when it has read too much."""
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
