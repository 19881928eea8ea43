"""Versions: the fingerprints that identify one peer's states to the others, and the time that a round takes."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise
from statistics import median

from ..members.view import Version
from .state import State, state_fingerprint

_USUAL = 9
"""The number of recent commits from whose intervals a round's time is taken."""


class Versions:
    """The versions of one peer's last two states, from `state` on."""

    def __init__(self, state: State) -> None:
        self._known = [(state, Version(state.round, state_fingerprint(state)))]
        self._committed_at: deque[float] = deque(maxlen=_USUAL)

    def of(self, state: State) -> Version:
        """The version of `state`; those of the last two states are cached."""
        for known, version in self._known:
            if known is state:
                return version
        version = Version(state.round, state_fingerprint(state))
        self._known = [*self._known[-1:], (state, version)]
        return version

    def committed(self) -> None:
        """A round was committed."""
        self._committed_at.append(asyncio.get_running_loop().time())

    @property
    def usual_s(self) -> float:
        """Seconds that a round takes now, the median of recent intervals; 0: unknown."""
        times = list(self._committed_at)
        return median(after - before for before, after in pairwise(times)) if len(times) > 1 else 0.0
