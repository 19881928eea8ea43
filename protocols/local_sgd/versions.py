"""Versions: round numbers and fingerprints by which peers compare their states; and the time that a round usually
takes."""

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
    """Computes the versions of one peer's states, and caches those of the last two. `state`: the first."""

    def __init__(self, state: State) -> None:
        self._known = [(state, Version(state.round, state_fingerprint(state)))]
        self._committed_at: deque[float] = deque(maxlen=_USUAL)

    def of(self, state: State) -> Version:
        """The version of `state`: its round and its fingerprint, computed anew (one pass over the tensors) unless
        `state` is one of the last two whose versions were computed."""
        for known, version in self._known:
            if known is state:
                return version
        version = Version(state.round, state_fingerprint(state))
        self._known = [*self._known[-1:], (state, version)]
        return version

    def committed(self) -> None:
        """Note that a round was committed now."""
        self._committed_at.append(asyncio.get_running_loop().time())

    @property
    def usual_s(self) -> float:
        """Seconds that a round takes now: the median interval between the last 9 commits. 0.0: unknown before the
        second commit."""
        times = list(self._committed_at)
        return median(after - before for before, after in pairwise(times)) if len(times) > 1 else 0.0
