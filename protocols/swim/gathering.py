"""Gathering: whether enough peers are there for the run to start.

Where a peer knows all others, it counts them. Where each has links to a few only, all tell each other marks, which are
hashes of 62 bits, of the peers that they have heard of. The run starts when one peer knows nearly as many marks as
there are founders; then the marks are forgotten. Each beat, the data that goes with a probe or an answer, tells whether
the run has started.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from .messages import MARKS_MAX, MARKS_SENT

_MISSING = 32
"""The run may start while one founder in this number is still unheard of: the last marks take as long to spread as all
others. Such a founder comes in as a newcomer."""
_SHARE = 10
"""A beat carries one in this number of the founders' marks, within bounds."""
_TIME = 2
"""For how many periods after hearing of the start a peer still waits to hear of other founders."""
_SPARE = 2
"""The most marks that are kept, as a multiple of the number of founders: peers that restart before the start leave
marks too."""


class Gathering:
    """Counts the peers that have gathered, so that the run starts when there are enough. `founders`: how many peers the
    run starts with. `marks`: the peers are counted by their marks; else by the members that this peer knows."""

    def __init__(self, founders: int, chance: random.Random, *, marks: bool) -> None:
        self.started = founders <= 1
        self._founders, self._chance, self._by_marks = founders, chance, marks
        self._heard_in: int | None = None
        self._known: set[int] = set()
        self._at_once = max(MARKS_SENT, min(MARKS_MAX, founders // _SHARE))
        self._told: list[list[int]] = [[]]
        """The marks, grouped by how often this peer has told them: never, once, ..."""

    def count(self, peers: int) -> bool:
        """Note that this peer knows `peers` peers, itself included. Returns whether the run starts by this; False where
        peers are counted by marks."""
        return not self._by_marks and self._start(peers)

    def add(self, marks: Iterable[int]) -> bool:
        """Note that the peers with these marks are there. Returns whether the run starts by this: as many marks are
        known as there are founders, less one in 32. False where members are counted."""
        if self.started or not self._by_marks:
            return False
        for mark in marks:
            if mark not in self._known and len(self._known) < _SPARE * self._founders:
                self._known.add(mark)
                self._told[0].append(mark)
        return len(self._known) >= self._founders - self._founders // _MISSING and self._start(self._founders)

    def hear(self, period: int, known: int) -> bool:
        """Note that another peer has reported the start of the run. This peer then starts too: at once if peers are
        counted by marks, else if it knows as many peers as there are founders, or if the first such report came two
        periods ago or earlier. `period`: the number of this peer's present one; `known`: how many peers it knows,
        itself included. Returns whether it starts by this."""
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
        """The marks to send now: some of those that this peer has sent least often, at most a tenth as many as there
        are founders, within 64 and 1024. They count as sent once more. Empty after the start, or without marks."""
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
