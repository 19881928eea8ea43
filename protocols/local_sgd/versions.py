"""Versions: by what fingerprints a peer's states are known to the others, and how fast they follow each other."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise
from statistics import median

from ..members.view import Version
from .state import State, state_fingerprint

_USUAL = 9
"""So many rounds tell how long one takes."""


class Versions:
    """Of the last two states of one peer, from `state` on."""

    def __init__(self, state: State) -> None:
        self._known = [(state, Version(state.round, state_fingerprint(state)))]
        self._committed_at: deque[float] = deque(maxlen=_USUAL)

    def of(self, state: State) -> Version:
        """That of one of the last two states."""
        for known, version in self._known:
            if known is state:
                return version
        version = Version(state.round, state_fingerprint(state))
        self._known = [*self._known[-1:], (state, version)]
        return version

    def committed(self) -> None:
        """A round is over."""
        self._committed_at.append(asyncio.get_running_loop().time())

    @property
    def usual_s(self) -> float:
        """How long a round takes now; 0: not known."""
        times = list(self._committed_at)
        return median(after - before for before, after in pairwise(times)) if len(times) > 1 else 0.0
