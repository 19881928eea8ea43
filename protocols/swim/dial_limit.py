"""The dial limit: a bound on the new connections that a peer opens a minute."""

from __future__ import annotations

_BURST = 0.5
"""The share of a minute's new connections that may be opened at once."""


class DialLimit:
    """One peer may open `a_minute` new connections a minute on average, and half as many at once."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = a_minute
        self._left, self._at_s = _BURST * a_minute, 0.0

    def take(self, now_s: float) -> bool:
        """Count one more connection, if it may be opened now, and return whether it may. `now_s`: the present time in
        seconds, on the same monotonic clock in all calls."""
        self._left = min(_BURST * self._a_minute, self._left + (now_s - self._at_s) * self._a_minute / 60.0)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
