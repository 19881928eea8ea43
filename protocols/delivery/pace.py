"""The pace of a link: how much may be under way on it, and how large a chunk suits it, from the rates that it has had.

As BBR (Cardwell et al., 2016) a bandwidth is the greatest of the last rates; as LEDBAT (RFC 6817) delays of the two
directions are told apart by the senders' clocks, so that acknowledgements that wait do not make a way look slower.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from ..wire import PAYLOAD_BYTES_MAX

WINDOW_BYTES_MIN, WINDOW_BYTES_START, WINDOW_BYTES_MAX = 8 * 1024, 32 * 1024, 32 << 20
"""Heartbeats go behind what is under way: on the slowest way it must be there well before the patience ends."""
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 2 * 1024, PAYLOAD_BYTES_MAX
ASK_S = 0.02
"""Acknowledgements are asked for no oftener, as each costs."""
_HORIZON_S, _HORIZONS = 0.7, 12
"""How much a link may have under way, beside what is on a long way anyway, in seconds of its measured bandwidth; and
how many times that must be there within the patience, as links that share a way each measure what it carries alone.
While acknowledgements wait behind other data it is half as much again, at most, so eight times."""
_WAITED = 0.5
_CHUNK_BYTES, _CHUNK_S = 8 * 1024, 0.008
"""A chunk goes on only when all of it is there, so it is a sixteenth of a window; but as each costs, it has so many
bytes and takes so long, up to a quarter of the window."""
_GREW = 1.75
"""A window that was doubled has found room when the rate is at least so many times what it was."""
_ROUND_TRIPS = 3
"""The bandwidth is the greatest rate of so many round trips, or horizons if these are shorter, the present one among
them: not of so many rates, as those of what goes out at once, after a pause, rise from nothing while it is
acknowledged."""


class Rate(NamedTuple):
    """At which bytes were acknowledged. full: whether the way was. posted_at: when the last of them was posted."""

    Bps: float
    full: bool
    posted_at: float = math.inf


def suiting_chunk(spare_bytes: float, bandwidth_Bps: float) -> int:
    """How large a payload suits a way of that bandwidth, on which so many bytes may wait: a multiple of 2 KiB."""
    whole = max(spare_bytes / 16, _CHUNK_BYTES, bandwidth_Bps * _CHUNK_S)
    fitting = int(min(whole, spare_bytes / 4)) // CHUNK_BYTES_MIN * CHUNK_BYTES_MIN
    return max(CHUNK_BYTES_MIN, min(CHUNK_BYTES_MAX, fitting))


class Pace:
    """How much may be under way on a link, from the rate at which what was sent has been acknowledged."""

    def __init__(self, patience_s: float) -> None:
        self._horizon_s = min(_HORIZON_S, patience_s / _HORIZONS)
        self._begin(WINDOW_BYTES_START)

    def _begin(self, window_bytes: int) -> None:
        """Nothing is known of the way."""
        self.bandwidth_Bps: float | None = None
        self._rates_Bps: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._grew_to_Bps, self._tried_until, self._round_trip_s = 0.0, 0.0, 0.0
        self._most_bytes, self._round_trip_at, self._kept_at = window_bytes, 0.0, 0.0
        self._open(window_bytes)

    def _open(self, window_bytes: int, spare: float = 1.0) -> None:
        """`spare`: the share of the window that is not on a long way anyway."""
        self.window_bytes = window_bytes
        self.chunk_bytes = suiting_chunk(spare * window_bytes, self.bandwidth_Bps or 0.0)
        """How large a payload suits the way now."""

    def limits(self) -> tuple[int, int]:
        """How much may be under way, and after how much an acknowledgement is asked for: an eighth of what may be
        beside what is on a long way anyway, so that the way does not run empty, nor much go out at once; or, as each
        costs, after some time, but about a third at most."""
        window_bytes, bandwidth_Bps = self.window_bytes, self.bandwidth_Bps or 0.0
        spare_bytes = window_bytes - bandwidth_Bps * self._round_trip_s
        ask_bytes = min(max(spare_bytes / 8, bandwidth_Bps * ASK_S), spare_bytes / 3)
        return window_bytes, max(window_bytes // 8, int(ask_bytes))

    def measured(
        self, rate: Rate, round_trip_s: float | None = None, waited_s: float = 0.0, now: float = math.inf
    ) -> None:
        """A rate that was reached can be reached; a lower one tells of the way only if the way was full, and if none of
        the last was higher. The shortest round trip ever is the way's: a busy way's other ones have waited behind what
        the window let go. But for so long as acknowledgements have `waited_s` on their own way, behind what the other
        side sends, this way has to have more to carry."""
        if round_trip_s is not None and not 0 < self._round_trip_s <= round_trip_s:
            self._round_trip_s = round_trip_s
        before, trying = self.bandwidth_Bps, now < self._tried_until
        horizon_s = self._horizon_s + self._round_trip_s + min(waited_s, _WAITED * self._horizon_s)
        if rate.Bps < (self.window_bytes / horizon_s if before is None else before) and (trying or not rate.full):
            return
        self._keep(rate, now, horizon_s)
        self.bandwidth_Bps = max(self._rates_Bps)
        # What is remembered keeps the window, and only what is seen now lets it grow.
        fitting = int(min(self.bandwidth_Bps * horizon_s, max(rate.Bps * horizon_s, self.window_bytes)))
        longer = self._round_trip_s > self._horizon_s and fitting > self.window_bytes
        if rate.full and longer and rate.Bps >= _GREW * self._grew_to_Bps:
            # On a way so long a window limits the rate. What a larger one brings is seen when it was there and back.
            self._grew_to_Bps, fitting, self._tried_until = rate.Bps, 2 * self.window_bytes, now + horizon_s
        elif trying:
            fitting = max(fitting, self.window_bytes)
        window_bytes = max(WINDOW_BYTES_MIN, min(fitting, self._most_bytes))
        self._open(window_bytes, self._horizon_s / horizon_s)

    def _keep(self, rate: Rate, now: float, horizon_s: float) -> None:
        """Remember it, with others of its round trip; one that is longer than the window should take, as on a way that
        has become slower, counts as several."""
        there = rate.posted_at >= self._round_trip_at
        if there or now >= self._kept_at + horizon_s:
            self._kept_at = now
            self._rates_Bps.append(rate.Bps)
        else:
            self._rates_Bps[-1] = max(self._rates_Bps[-1], rate.Bps)
        if there:
            # At most it doubles before what was posted since is there: a lucky rate, of an empty queue somewhere on the
            # way, must not flood a slow link.
            self._most_bytes, self._round_trip_at = min(2 * self.window_bytes, WINDOW_BYTES_MAX), now

    def broke(self) -> None:
        """The link was lost with something under way: that may have been too much, so the way is learned anew."""
        self._begin(max(WINDOW_BYTES_MIN, min(self.window_bytes // 2, WINDOW_BYTES_START)))
