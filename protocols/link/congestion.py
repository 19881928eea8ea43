"""Congestion control of a link: sets the window (bytes in flight) and the chunk size by the rates at which bytes were
acknowledged.

As in BBR (Cardwell et al., 2016) the bandwidth is the maximum of the recent rates. As in LEDBAT (RFC 6817) the senders'
timestamps separate the delays of the two directions, so that acknowledgements which queue on the way back do not make
the way out look slower. The patience is the silence after which a peer counts as lost.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from ..wire.frames import PAYLOAD_BYTES_MAX

WINDOW_BYTES_MIN, WINDOW_BYTES_START, WINDOW_BYTES_MAX = 8 * 1024, 32 * 1024, 32 << 20
"""Bounds of the window, and its first size. A heartbeat queues behind the window: on the slowest path a window must
arrive well before the patience ends."""
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 2 * 1024, PAYLOAD_BYTES_MAX
ASK_S = 0.02
"""The least time between two requests for acknowledgements: each costs a message."""
_HORIZON_S, _HORIZONS = 0.7, 12
"""Beyond the bandwidth-delay product a link may have 0.7 s of measured bandwidth in flight, and at most 1/12 of the
patience: links that share a path each measure its full bandwidth. While acknowledgements queue behind other data it may
be half as much again, so at most 1/8 of the patience."""
_WAITED = 0.5
_CHUNK_BYTES, _CHUNK_S = 8 * 1024, 0.008
"""A chunk is passed on only when it is complete, so it is a sixteenth of the window. As each chunk has a fixed cost, it
has at least 8 KiB and takes at least 8 ms, but at most a quarter of the window."""
_GREW = 1.75
"""A doubled window has made the link faster if the rate is at least this many times what it was."""
_ROUND_TRIPS = 3
"""The bandwidth is the maximum rate of this many round trips, or horizons if these are shorter, the present one
included. It is not the maximum of a fixed number of rates: after a pause, the rates of one burst rise from nothing
while it is acknowledged."""


class Rate(NamedTuple):
    """A rate at which bytes were acknowledged, in bytes a second. `full`: whether a packet after these had to wait for
    the window; `posted_at`: when the last of the bytes were sent, on the link's clock; infinite: unknown."""

    Bps: float
    full: bool
    posted_at: float = math.inf


def suiting_chunk(spare_bytes: float, bandwidth_Bps: float) -> int:
    """The payload bytes of a chunk that suit a path of that bandwidth whose window exceeds the bandwidth-delay product
    by `spare_bytes`: a sixteenth of these, or 8 KiB or 8 ms of the bandwidth if one of them is more, but at most a
    quarter of `spare_bytes`; in whole multiples of 2 KiB, from 2 KiB to 2 MiB."""
    whole = max(spare_bytes / 16, _CHUNK_BYTES, bandwidth_Bps * _CHUNK_S)
    fitting = int(min(whole, spare_bytes / 4)) // CHUNK_BYTES_MIN * CHUNK_BYTES_MIN
    return max(CHUNK_BYTES_MIN, min(CHUNK_BYTES_MAX, fitting))


class Pace:
    """The congestion control of one link. `window_bytes`: how many bytes the sender may have in flight; `chunk_bytes`:
    the size of payload to send now; `bandwidth_Bps`: the measured bandwidth, None before the first measurement."""

    def __init__(self, patience_s: float, most_Bps: float | None = None) -> None:
        """`patience_s`: seconds of silence after which the peer counts as lost. `most_Bps`: the most that the path is
        known to carry; None: nothing is known of it."""
        self._horizon_s = min(_HORIZON_S, patience_s / _HORIZONS)
        known_bytes = WINDOW_BYTES_START if most_Bps is None else int(most_Bps * self._horizon_s)
        self._start_bytes = max(WINDOW_BYTES_MIN, min(WINDOW_BYTES_START, known_bytes))
        self._begin(self._start_bytes)

    def _begin(self, window_bytes: int) -> None:
        """Forget all measurements of the path."""
        self.bandwidth_Bps: float | None = None
        self._rates_Bps: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._grew_to_Bps, self._tried_until, self._round_trip_s = 0.0, 0.0, 0.0
        self._most_bytes, self._round_trip_at, self._kept_at = window_bytes, 0.0, 0.0
        self._open(window_bytes)

    def _open(self, window_bytes: int, spare: float = 1.0) -> None:
        """`spare`: the share of the window beyond the bandwidth-delay product."""
        self.window_bytes = window_bytes
        self.chunk_bytes = suiting_chunk(spare * window_bytes, self.bandwidth_Bps or 0.0)
        """The size of payload that suits the path now."""

    def limits(self) -> tuple[int, int]:
        """The window in bytes, and the bytes after which the sender asks for an acknowledgement. The latter is an
        eighth of the window, so that the path neither runs empty nor gets large bursts; or, as each request costs a
        message, 0.02 s of bandwidth if that is more, up to a third of the window beyond the bandwidth-delay product.
        """
        window_bytes, bandwidth_Bps = self.window_bytes, self.bandwidth_Bps or 0.0
        spare_bytes = window_bytes - bandwidth_Bps * self._round_trip_s
        ask_bytes = min(max(spare_bytes / 8, bandwidth_Bps * ASK_S), spare_bytes / 3)
        return window_bytes, max(window_bytes // 8, int(ask_bytes))

    def measured(
        self, rate: Rate, round_trip_s: float | None = None, waited_s: float = 0.0, now: float = math.inf
    ) -> None:
        """Update bandwidth, window and chunk size by a measured rate. A rate below the bandwidth (before the first
        measurement: below the rate that fills the window) counts only if the window limited sending (`Rate.full`), and
        not while a doubled window is being tried; it lowers the bandwidth only when no recent rate was higher.
        `round_trip_s`: measured, None: not; it counts even where the rate does not. The path's round trip is the
        shortest one since the link last broke (`broke`): longer ones waited behind this link's own window. `waited_s`:
        queueing delay of the acknowledgement behind data of the other side; the window is larger by as much, up to half
        of what it has beyond the bandwidth-delay product, so that this path does not run empty. `now`: on the link's
        clock."""
        if round_trip_s is not None and not 0 < self._round_trip_s <= round_trip_s:
            self._round_trip_s = round_trip_s
        before, trying = self.bandwidth_Bps, now < self._tried_until
        horizon_s = self._horizon_s + self._round_trip_s + min(waited_s, _WAITED * self._horizon_s)
        if rate.Bps < (self.window_bytes / horizon_s if before is None else before) and (trying or not rate.full):
            return
        self._keep(rate, now, horizon_s)
        self.bandwidth_Bps = max(self._rates_Bps)
        # A remembered rate keeps the window; only the present rate lets it grow.
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
        """Remember the maximum rate of each round trip. A round trip that is longer than the window should take, as on
        a path that has become slower, counts as several."""
        there = rate.posted_at >= self._round_trip_at
        if there or now >= self._kept_at + horizon_s:
            self._kept_at = now
            self._rates_Bps.append(rate.Bps)
        else:
            self._rates_Bps[-1] = max(self._rates_Bps[-1], rate.Bps)
        if there:
            # The window at most doubles in a round trip: a lucky rate, of an empty queue somewhere on the path, must
            # not flood a slow link.
            self._most_bytes, self._round_trip_at = min(2 * self.window_bytes, WINDOW_BYTES_MAX), now

    def broke(self) -> None:
        """Forget all measurements, and begin with half the window, or with the size of the first one if that is less:
        the link was lost with packets in flight, so the window may have been too large."""
        self._begin(max(WINDOW_BYTES_MIN, min(self.window_bytes // 2, self._start_bytes)))
