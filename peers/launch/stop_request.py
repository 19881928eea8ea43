"""The user's wish that a run stops, by Ctrl-C or a signal."""

from __future__ import annotations

import asyncio
import math
import time

QUIET_S = 1.0
"""Seconds after a stop in which nothing is said, and a further wish is taken for the same one."""


class StopRequest(asyncio.Event):
    """Set once, it stops the peers of a run, which may save what they have. Set again more than `QUIET_S` later, it
    makes `at_once` true: the processes that still run are killed."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = False
        self._wished_s = math.inf

    def set(self) -> None:
        """Wish the stop, or, if it was wished before, the end of all processes at once."""
        now_s = time.monotonic()
        self._wished_s = min(self._wished_s, now_s)
        if now_s > self._wished_s + QUIET_S:
            self.at_once = True
        super().set()
