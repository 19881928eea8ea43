"""Gathering: whether enough peers are there for the run to start.

Where a peer knows all others it counts them. Where it has links to a few only, all tell each other marks of the peers
that they have heard of, 62 bits each, until one has as many as are to gather; then they forget the marks. That the run
has started spreads with each beat.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from .messages import MARKS_SENT

_SPARE = 2
"""So many times the founders' marks are kept at most: restarts before the start leave marks too."""


class Gathering:
    """One peer's count. `founders`: how many are to gather. `marks`: whether they are counted by their marks."""

    def __init__(self, founders: int, *, marks: bool, chance: random.Random) -> None:
        self.started = founders <= 1
        self._founders, self._by_marks, self._chance = founders, marks, chance
        self._told: dict[int, int] = {}
        """Mark -> how often this peer has told it."""

    def count(self, peers: int) -> bool:
        """This peer knows so many. Returns whether the run starts by it."""
        return not self._by_marks and self._start(peers)

    def add(self, marks: Iterable[int]) -> bool:
        """These peers are there. Returns whether the run starts by it."""
        if self.started or not self._by_marks:
            return False
        for mark in marks:
            if len(self._told) < _SPARE * self._founders:
                self._told.setdefault(mark, 0)
        return self._start(len(self._told))

    def hear(self, started: bool) -> bool:
        """Another peer has heard that the run has started, or has not. Returns whether it starts by it."""
        return started and self._start(self._founders)

    def _start(self, peers: int) -> bool:
        if self.started or peers < self._founders:
            return False
        self.started = True
        self._told.clear()
        return True

    def pick(self) -> tuple[int, ...]:
        """The marks to tell now: those that were told least."""
        if len(self._told) <= MARKS_SENT:
            return tuple(self._told)
        least = sorted(self._told, key=lambda mark: (self._told[mark], self._chance.random()))[:MARKS_SENT]
        for mark in least:
            self._told[mark] += 1
        return tuple(least)
