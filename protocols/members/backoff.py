"""Exponential backoff for repeated failures, and a rate limit for repeated answers."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

LONGEST_S = 3600.0
"""The longest backoff, in seconds. An item's failures are forgotten when, for this long after its last backoff has
ended, it has not failed again."""

Item = TypeVar("Item")


class Backoff(Generic[Item]):
    """Exponential backoff for each item: 0 s after each of the first `free` failures, then `first_s`, then twice as
    long after each further one, up to `LONGEST_S` (3600 s). Failures are forgotten that long after the backoff has
    ended."""

    def __init__(self, first_s: float, *, free: int = 0) -> None:
        self._first_s, self._free = first_s, free
        self._known: dict[Item, tuple[float, int]] = {}
        """When each item is forgotten, on the loop's clock, and how often it has failed."""

    def again(self, item: Item) -> float:
        """Record a failure of `item`. Returns the seconds to wait before trying it again; it does not wait itself."""
        now = asyncio.get_running_loop().time()
        self._known = {known: one for known, one in self._known.items() if now < one[0]}
        times = self._known.get(item, (0.0, 0))[1] + 1
        seconds = 0.0 if times <= self._free else min(self._first_s * 2.0 ** (times - self._free - 1), LONGEST_S)
        self._known[item] = now + seconds + LONGEST_S, times
        return seconds


class Once(Generic[Item]):
    """A rate limit: allows each item once in `every_s` seconds, so that repeated questions do not cost repeated
    answers."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._again_s: dict[Item, float] = {}
        """When each item is due again, on the loop's clock."""

    def due(self, item: Item) -> bool:
        """Whether `item` is allowed now. If True is returned, it is not allowed again for `every_s` seconds."""
        now = asyncio.get_running_loop().time()
        if now < self._again_s.get(item, now):
            return False
        self._again_s[item] = now + self._every_s
        return True

    def clear(self) -> None:
        """Allow every item again at once."""
        self._again_s.clear()
