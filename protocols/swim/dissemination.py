"""Dissemination: how fresh words spread to all peers, carried by probes and answers. A word is a statement of a peer on
another one, such as that it is dead (`words`).

Each peer tells a word 3 log2(n + 1) times, those that it has told least first, and never to the peer that brought it.
So a word reaches all of n peers after O(log n) periods, with high probability, and then dies out.

Source: Das, Gupta and Motivala, "SWIM: scalable weakly-consistent infection-style process group membership protocol",
DSN 2002, section 4.1.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ..transport import PeerId
from .words import Word

_TIMES = 3
_ROOM, _ROOM_OF_ONE = 128, 32
"""The most words that a peer passes on at a time, and the most of these that came from one other peer."""
_HEARD_MAX = 1024
"""How many of the latest words a peer recognises when they come again."""


@dataclass(slots=True, eq=False)
class _Rumour:
    word: Word
    bringer: PeerId
    told: int = 0


class Dissemination:
    """The words that one peer passes on, each a bounded number of times. `peers`: returns about how many peers there
    are. `fresh` is called after each new word."""

    def __init__(self, peers: Callable[[], int], fresh: Callable[[], None]) -> None:
        self._peers, self._fresh = peers, fresh
        self._now: dict[PeerId, _Rumour] = {}
        """By the peer that it is about: a newer word replaces an older one."""
        self._of_one = Counter[PeerId]()
        self._heard: OrderedDict[tuple[PeerId, int, int, int], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._now)

    def add(self, word: Word, bringer: PeerId = "") -> bool:
        """Pass `word` on from now on, in place of an older one about the same peer. `bringer`: the peer that told it;
        "": this peer itself. Returns False, and does nothing, if the same word was passed on before, or if there is no
        room for it. There always is for this peer's own words, and for those that replace another."""
        mark = (word.id, word.life, word.incarnation, word.kind)
        if mark in self._heard:
            return False
        before = self._now.get(word.id)
        full = len(self._now) >= _ROOM or self._of_one[bringer] >= _ROOM_OF_ONE
        if before is None and full and bringer:
            return False
        self._heard[mark] = None
        if len(self._heard) > _HEARD_MAX:
            self._heard.popitem(last=False)
        if before is not None:
            self._drop(before)
        self._now[word.id] = _Rumour(word, bringer)
        self._of_one[bringer] += 1
        self._fresh()
        return True

    def pick(self, to: PeerId, count: int) -> tuple[Word, ...]:
        """The words to send to the peer `to` now, at most `count`, without those that it brought; those that were sent
        least come first. They count as sent once more; a word that was sent often enough is dropped."""
        if not self._now:
            return ()
        due = [one for one in self._now.values() if one.bringer != to]
        if len(due) > count:
            due.sort(key=lambda one: one.told)
            del due[count:]
        limit = _TIMES * math.ceil(math.log2(self._peers() + 1))
        for one in due:
            one.told += 1
            if one.told >= limit:
                self._drop(one)
        return tuple(one.word for one in due)

    def _drop(self, one: _Rumour) -> None:
        del self._now[one.word.id]
        self._of_one[one.bringer] -= 1
        if not self._of_one[one.bringer]:
            del self._of_one[one.bringer]
