"""A down-link that several senders share, as it is known at its end."""

from __future__ import annotations

import math
from bisect import bisect

from ..link_spec import link_bytes

_KNOWN_MAX = 64


class DownLink:
    """Taken in the order in which first bytes come to it, of which is known when last bytes do: what came in between
    has been let through, and takes its time behind."""

    def __init__(self, rate_Bps: float) -> None:
        self._rate_Bps = rate_Bps
        self._known: list[tuple[float, float]] = []
        """Of the latest frames, in order: when the first byte came, and how long the link takes for all."""
        self._free_s = 0.0
        """When it was free of those before."""

    def take(self, first_s: float, size: int) -> float:
        """When the last of `size` bytes, the first of which came then, is through."""
        takes_s = link_bytes(size) / self._rate_Bps
        at, free_s = bisect(self._known, (first_s, math.inf)), self._free_s
        for earlier_s, took_s in self._known[:at]:
            free_s = took_s + max(earlier_s, free_s)
        self._known.insert(at, (first_s, takes_s))
        if len(self._known) > _KNOWN_MAX:
            earlier_s, took_s = self._known.pop(0)
            self._free_s = took_s + max(earlier_s, self._free_s)
        return takes_s + max(first_s, free_s)
