"""Readings: a rate limit on how often each peer may read the state."""

from __future__ import annotations

import asyncio

from ..transport import PeerId
from ..wire.frames import PeerMisbehaved

_READINGS, _AT_ONCE = 16, 64
"""How many states one peer may read in an interval, and how many at once. A peer that catches up needs one, and some
more when the others go on meanwhile."""
_READERS_MAX = 1024


class Readings:
    """The rate limits of all peers that ask one donor."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._read: dict[PeerId, tuple[float, float]] = {}
        """For each peer: states read, less those forgiven since; and when that was computed, on the loop's clock."""

    def read(self, peer: PeerId, share: float) -> None:
        """`peer` asks for this `share` of a state. Raises PeerMisbehaved when it has read too many."""
        now = asyncio.get_running_loop().time()
        states, at_s = self._read.get(peer, (0.0, now))
        states = max(0.0, states - (now - at_s) / self._interval_s * _READINGS)
        if states + share > _AT_ONCE:
            raise PeerMisbehaved("asked for the state over and over again")
        if len(self._read) >= _READERS_MAX and peer not in self._read:
            del self._read[next(iter(self._read))]
        self._read.pop(peer, None)
        self._read[peer] = states + share, now
