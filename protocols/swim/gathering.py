"""Gathering: whether enough peers are there for the run to start.

Where a peer knows all others it counts them. Where it has links to a few only, all tell each other marks of the peers
that they have heard of, 62 bits each, until one has nearly as many as are to gather; then they forget the marks. Each
beat tells whether the run has started.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from .messages import MARKS_MAX, MARKS_SENT

_MISSING = 32
"""Of so many founders one may be unheard of when the run starts: the last marks take as long as all others to go round.
It comes in as a newcomer then."""
_SHARE = 10
"""A beat tells a tenth of the founders' marks, within bounds."""
_TIME = 2
"""Periods that a peer which has heard of the start takes to hear of the other founders."""
_SPARE = 2
"""So many times the founders' marks are kept at most: restarts before the start leave marks too."""


class Gathering:
    """One peer's count. `founders`: how many are to gather. `marks`: whether it is by their marks."""

    def __init__(self, founders: int, chance: random.Random, *, marks: bool) -> None:
        self.started = founders <= 1
        self._founders, self._chance, self._by_marks = founders, chance, marks
        self._heard_in: int | None = None
        self._known: set[int] = set()
        self._at_once = max(MARKS_SENT, min(MARKS_MAX, founders // _SHARE))
        self._told: list[list[int]] = [[]]
        """The marks by how often this peer has told them, the rarest first."""

    def count(self, peers: int) -> bool:
        """This peer knows so many. Returns whether the run starts by it."""
        return not self._by_marks and self._start(peers)

    def add(self, marks: Iterable[int]) -> bool:
        """These peers are there. Returns whether the run starts by it."""
        if self.started or not self._by_marks:
            return False
        for mark in marks:
            if mark not in self._known and len(self._known) < _SPARE * self._founders:
                self._known.add(mark)
                self._told[0].append(mark)
        return len(self._known) >= self._founders - self._founders // _MISSING and self._start(self._founders)

    def hear(self, period: int, known: int) -> bool:
        """Another peer tells, in this peer's `period`, that the run has started. This one starts too, once it knows as
        many peers, or has had time to ask for them. Returns whether it does. `known`: so many does it know."""
        if self._heard_in is None:
            self._heard_in = period
        complete = self._by_marks or known >= self._founders or period - self._heard_in >= _TIME
        return complete and self._start(self._founders)

    def _start(self, peers: int) -> bool:
        if self.started or peers < self._founders:
            return False
        self.started = True
        self._known.clear()
        self._told = [[]]
        return True

    def pick(self) -> tuple[int, ...]:
        """The marks to tell now: some of those that were told least."""
        picked, told = list[int](), list[list[int]]()
        for marks in self._told:
            some = [self._drawn(marks) for _ in range(min(self._at_once - len(picked), len(marks)))]
            picked += some
            told.append(some)
        self._told.append([])
        for times, some in enumerate(told):
            self._told[times + 1] += some
        self._told = [marks for marks in self._told if marks] or [[]]
        return tuple(picked)

    def _drawn(self, marks: list[int]) -> int:
        place = self._chance.randrange(len(marks))
        marks[place], marks[-1] = marks[-1], marks[place]
        return marks.pop()
