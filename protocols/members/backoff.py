"""Backoff: how long to leave alone what goes wrong again and again, or was told just now."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

LONGEST_S = 3600.0
"""Nothing is left alone for longer; and what has gone well for so long is forgotten."""

Key = TypeVar("Key")


class Backoff(Generic[Key]):
    """The first `free` times for no time, then for `first_s`, and then each time for twice as long."""

    def __init__(self, first_s: float, *, free: int = 0) -> None:
        self._first_s, self._free = first_s, free
        self._known: dict[Key, tuple[float, int]] = {}
        """Until when it is known, on the loop's clock, and how often it went wrong."""

    def again(self, key: Key) -> float:
        """It has gone wrong: for how many seconds to leave it alone."""
        now = asyncio.get_running_loop().time()
        self._known = {known: one for known, one in self._known.items() if now < one[0]}
        times = self._known.get(key, (0.0, 0))[1] + 1
        seconds = 0.0 if times <= self._free else min(self._first_s * 2.0 ** (times - self._free - 1), LONGEST_S)
        self._known[key] = now + seconds + LONGEST_S, times
        return seconds


class Once(Generic[Key]):
    """Each once in `every_s`, so that an answer costs no more however often it is asked for."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._again_s: dict[Key, float] = {}
        """When it is the turn of each again, on the loop's clock."""

    def due(self, key: Key) -> bool:
        """Whether it is its turn, which is taken then."""
        now = asyncio.get_running_loop().time()
        if now < self._again_s.get(key, now):
            return False
        self._again_s[key] = now + self._every_s
        return True

    def clear(self) -> None:
        """It is everybody's turn."""
        self._again_s.clear()
