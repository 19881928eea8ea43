"""The boards of gossip: a slot holds a vector. Its note tells the vector's number on the board, its round, the local
steps that led to it, whether it is its owner's last one, and the numbers that go with it.

A mark is a round: by it the owner tells another peer that it has read that peer's vectors up to the round.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...aggregation.periods.policy import STILL
from ..shared_memory.board import Board, Form, Window
from .periods import Told

SLOTS = 6
"""The number of vectors for which a board has room: those of four rounds (`kept`), one that is being written, and one
that was shown in the middle of a round."""
_ROUND, _STEP, _LAST, _LOSS, _LEARNING_RATE, _LINKS, _MOVES, _MOTION = range(1, 9)
"""Behind the number of a note. `_MOVES`: whether it has a motion, in the words from `_MOTION` on."""


class Note(NamedTuple):
    """The description of the vector in `slot`. `number`: its own on this board, above 0; a later vector has a higher
    one. `round`, `step`: the exchanges and the local steps of the owner that led to it. `last`: the owner takes no more
    steps, so that this vector stands for all later rounds too. `told`: the numbers that the owner tells with it."""

    slot: int
    number: int
    round: int
    step: int
    last: bool
    told: Told


class VectorBoard(Board):
    """A peer's own board, for vectors of the size and dtype of `like` [n]. Raises OSError where there is no memory to
    share."""

    def __init__(self, like: Tensor) -> None:
        super().__init__(_form(like))

    def show(self, slot: int, round: int, step: int, last: bool, told: Told) -> int:
        """Declare the vector in the slot complete, so that readers find it. The caller has written it to `clear(slot)`
        and writes no more. `round`, `step`, `last`, `told`: its description, as in `Note`. Returns the vector's number,
        which no vector on this board has had before."""
        words, reals, at = self._here.words, self._here.reals, self._here.notes[slot]
        words[at + _ROUND], words[at + _STEP], words[at + _LAST] = round, step, last
        reals[at + _LOSS], reals[at + _LEARNING_RATE], words[at + _LINKS] = told.loss, told.learning_rate, told.links
        words[at + _MOVES] = bool(told.motion)
        for place, moved in enumerate(told.motion, at + _MOTION):
            reals[place] = moved
        return self.number(slot)


class VectorWindow(Window):
    """Another peer's board of vectors, mapped into this process for reading."""

    def __init__(self, pid: int, fd: int, secret: bytes, like: Tensor) -> None:
        """Map the board that the process `pid` has open as the descriptor `fd`. Its vectors have the size and dtype of
        `like` [n]. Raises OSError unless it is such a board, with this `secret`."""
        super().__init__(pid, fd, secret, _form(like))
        self._notes = list(enumerate(self._there.notes))
        self._in_vain = (0, 0)
        """The number of the newest vector and the round when `find` found nothing."""

    def find(self, round: int) -> Note | None:
        """The note of the vector of `round`, of several the newest. If the board has none of that round: the note of
        the newest vector, provided that it is of a later round or stands for all later rounds. None: there is no such
        vector now. The owner may overwrite the vector at any time (`Window.holds`)."""
        words, looked = self._words, (self.newest, round)
        if looked == self._in_vain:
            return None
        notes = self._there.notes
        shown = {slot: words[at] for slot, at in self._notes if words[at] > 0}
        of_round = [slot for slot in shown if words[notes[slot] + _ROUND] == round]
        slot = max(of_round or shown, key=lambda slot: shown[slot], default=None)
        if slot is not None:
            at = notes[slot]
            last = words[at + _LAST] != 0
            if of_round or last or words[at + _ROUND] > round:
                about = words[at + _ROUND], words[at + _STEP], last, self._told(at)
                return Note(slot, shown[slot], *about) if self.holds(slot, shown[slot]) else None
        self._in_vain = looked
        return None

    def _told(self, at: int) -> Told:
        words, reals = self._words, self._there.reals
        motion = tuple(reals[at + _MOTION : at + _MOTION + len(STILL)]) if words[at + _MOVES] else ()
        return Told(reals[at + _LOSS], reals[at + _LEARNING_RATE], motion, words[at + _LINKS])


def _form(like: Tensor) -> Form:
    return Form(like, SLOTS, _MOTION - 1 + len(STILL))
