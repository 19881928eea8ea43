"""Readings: how often each peer has read the state of late, so that nobody is served over and over again."""

from __future__ import annotations

import asyncio

from ..transport import PeerId
from ..wire.frames import PeerMisbehaved

_READINGS, _AT_ONCE = 16, 64
"""How many states are given to one peer in an interval, and how many at once. Who catches up needs one, and some more
when the others go on meanwhile."""
_READERS_MAX = 1024


class Readings:
    """Of all that ask one donor."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._read: dict[PeerId, tuple[float, float]] = {}
        """How many states, less what was forgiven since; and as of when, on the loop's clock."""

    def read(self, peer: PeerId, share: float) -> None:
        """`peer` asks for such a share of a state. Raises PeerMisbehaved when it has had so many."""
        now = asyncio.get_running_loop().time()
        states, at_s = self._read.get(peer, (0.0, now))
        states = max(0.0, states - (now - at_s) / self._interval_s * _READINGS)
        if states + share > _AT_ONCE:
            raise PeerMisbehaved("asked for the state over and over again")
        if len(self._read) >= _READERS_MAX and peer not in self._read:
            del self._read[next(iter(self._read))]
        self._read.pop(peer, None)
        self._read[peer] = states + share, now
