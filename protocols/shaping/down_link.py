"""A down-link that several senders share, modelled at its receiving end."""

from __future__ import annotations

import math
from bisect import bisect

from ..link_spec import link_bytes

_KNOWN_MAX = 64


class DownLink:
    """Serves frames one after the other, at `rate_Bps`, in the order in which their first bytes arrive. A frame is
    known only once its last byte has arrived. It may have begun to arrive before frames that were served meanwhile:
    their times stay, its own time is that as if it had been known then, and frames that are known later and began
    behind it wait for it too."""

    def __init__(self, rate_Bps: float) -> None:
        self._rate_Bps = rate_Bps
        self._known: list[tuple[float, float]] = []
        """The latest frames in order: when the first byte arrived, and the seconds that the link takes for the whole
        frame."""
        self._free_s = 0.0
        """When the link had served all frames before those."""

    def take(self, first_s: float, size: int) -> float:
        """The time at which the link has served a frame of `size` bytes on the wire, whose first byte arrived at the
        time `first_s`; both in seconds on one clock. The returned time may have passed already. The frame counts as
        taking the link from now on."""
        takes_s = link_bytes(size) / self._rate_Bps
        at, free_s = bisect(self._known, (first_s, math.inf)), self._free_s
        for earlier_s, took_s in self._known[:at]:
            free_s = took_s + max(earlier_s, free_s)
        self._known.insert(at, (first_s, takes_s))
        if len(self._known) > _KNOWN_MAX:
            earlier_s, took_s = self._known.pop(0)
            self._free_s = took_s + max(earlier_s, self._free_s)
        return takes_s + max(first_s, free_s)
