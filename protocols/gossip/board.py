"""A board: shared memory to which one peer writes its vectors, and in which the other peers on its machine read them.

    secret, marks, a note for each slot, slots

Only its owner writes to a board. A slot holds one vector, and its note describes it. The note has the number 0 while
the slot is written, and then a number that it has never had before: a reader that finds the same number before and
after reading has read one whole vector. A mark is a round: by it the owner tells another peer that it has read that
peer's vectors up to the round, so that the other may overwrite them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import mmap
import os
import secrets
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...aggregation.periods.policy import STILL
from ..limits import SHARED_MEMORY_MEMBERS_MAX
from ..shared_memory.segment import LINE_BYTES, SECRET_BYTES, allocate, opened, reserve
from .periods import Told

SLOTS = 6
"""The number of vectors for which a board has room: those of four rounds (`kept`), one that is being written, and one
that was shown in the middle of a round."""
ROWS = SHARED_MEMORY_MEMBERS_MAX
_MARKS_AT = LINE_BYTES
_NOTES_AT = _MARKS_AT + ROWS * LINE_BYTES
_PAGE = 4096
_WORDS = LINE_BYTES // 8
_ROUND, _STEP, _LAST, _LOSS, _LEARNING_RATE, _LINKS, _MOVES, _MOTION = range(1, 9)
"""Behind the number of a note. `_MOVES`: whether it has a motion, in the words from `_MOTION` on."""
_NOTE_WORDS = -(-(_MOTION + len(STILL)) // _WORDS) * _WORDS
_HEAD_BYTES = -(-(_NOTES_AT + 8 * SLOTS * _NOTE_WORDS) // _PAGE) * _PAGE
_NEWEST, _FULL = LINE_BYTES // 8 - 2, LINE_BYTES // 8 - 1
"""Words after the secret: the number of the newest vector, and whether there is no memory to show further ones."""
_SEAL_FUTURE_WRITE = 0x0010
"""F_SEAL_FUTURE_WRITE of <linux/fcntl.h>: only mappings that exist already can write."""


class Note(NamedTuple):
    """The description of the vector in `slot`, with its `number`. The other fields are those of `messages.Given`."""

    slot: int
    number: int
    round: int
    step: int
    last: bool
    told: Told


class _Mapped:
    """The mapped memory of a board whose slots are `like` a tensor [n]."""

    def __init__(self, mapped: mmap.mmap, like: Tensor) -> None:
        self.mapped, self._like, self._tensors = mapped, like[:0], dict[int, Tensor]()
        self._nbytes, self._slot_bytes = like.nbytes, _slot_bytes(like.nbytes)
        head = memoryview(mapped)[:_HEAD_BYTES]
        self.words, self.reals = head.cast("q"), head.cast("d")
        """All words of the head, as whole numbers and as real ones. One at a time is faster by these than by NumPy."""

    def tensor(self, slot: int) -> Tensor:
        if slot not in self._tensors:
            array = np.frombuffer(self.mapped, np.uint8, self._nbytes, self.at(slot))
            with warnings.catch_warnings():  # PyTorch has no tensors that cannot be written to
                warnings.simplefilter("ignore", UserWarning)
                self._tensors[slot] = torch.from_numpy(array).view(self._like.dtype)
        return self._tensors[slot]

    def at(self, slot: int) -> int:
        """The index of the slot's first byte."""
        return _HEAD_BYTES + slot * self._slot_bytes


class Board:
    """A peer's own board, for vectors of the size and dtype of `like` [n]. Raises OSError where there is no memory to
    share."""

    def __init__(self, like: Tensor) -> None:
        size = _size(like.nbytes)
        self.fd = allocate(size)
        try:
            reserve(self.fd, 0, _HEAD_BYTES)
            mapped = mmap.mmap(self.fd, size)
        except (OSError, ValueError) as error:
            os.close(self.fd)
            raise OSError(f"cannot have a board of {size} bytes: {error}") from error
        with contextlib.suppress(OSError):  # Linux before 5.1 has no such seal
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        self._here, self._reserved, self._slot_bytes = _Mapped(mapped, like), set[int](), _slot_bytes(like.nbytes)
        self.secret = secrets.token_bytes(SECRET_BYTES)
        mapped[:SECRET_BYTES] = self.secret

    def clear(self, slot: int) -> Tensor:
        """The slot as a tensor [n], for the owner to write a vector to. From now on until `show`, readers find no
        vector in the slot. Raises OSError where there is no memory for it."""
        words = self._here.words
        words[_note_at(slot)] = 0
        if slot not in self._reserved:
            words[_FULL] = 1
            reserve(self.fd, self._here.at(slot), self._slot_bytes)
            words[_FULL] = 0
            self._reserved.add(slot)
        return self._here.tensor(slot)

    def show(self, slot: int, round: int, step: int, last: bool, told: Told) -> int:
        """Declare the vector in the slot complete, so that readers find it. `round`, `step`, `last`, `told`: its
        description, as in `messages.Given`. Returns the vector's number, which no vector on this board has had
        before."""
        words, reals, at = self._here.words, self._here.reals, _note_at(slot)
        words[at + _ROUND], words[at + _STEP], words[at + _LAST] = round, step, last
        reals[at + _LOSS], reals[at + _LEARNING_RATE], words[at + _LINKS] = told.loss, told.learning_rate, told.links
        words[at + _MOVES] = bool(told.motion)
        for place, moved in enumerate(told.motion, at + _MOTION):
            reals[place] = moved
        words[at] = number = words[_NEWEST] + 1  # after the others: x86 keeps writes in order
        words[_NEWEST] = number
        return number

    def mark(self, row: int, round: int) -> None:
        """Write the mark of this row: the board's owner has read the vectors, up to `round`, of the peer to which the
        row belongs."""
        self._here.words[_mark_at(row)] = round

    def close(self) -> None:
        """Close the board: no further peer can open it. A peer that has it mapped can go on reading it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Window:
    """Another peer's board, as a reader sees it."""

    def __init__(self, pid: int, fd: int, secret: bytes, like: Tensor) -> None:
        """Map the board that is open in the process `pid` as the file descriptor `fd`. Raises OSError unless it is a
        board for vectors of the size and dtype of `like` [n], with this `secret`."""
        size = _size(like.nbytes)
        with opened(pid, fd, size, os.O_RDONLY) as theirs:
            try:
                mapped = mmap.mmap(theirs, size, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise OSError(f"cannot map {size} bytes: {error}") from error
        if not hmac.compare_digest(mapped[:SECRET_BYTES], secret):
            raise OSError("it has another secret on it")
        self._there, self._words = (there := _Mapped(mapped, like)), there.words
        self._in_vain = (0, 0)
        """The number of the newest vector and the round when `find` found nothing."""

    @property
    def full(self) -> bool:
        """Whether the owner has no memory to show its newest vectors, so that they have to be asked for."""
        return self._words[_FULL] != 0

    def find(self, round: int) -> Note | None:
        """The note of the vector of `round`. If the board no longer has that one: the note of the newest vector,
        provided that it is of a later round or stands for all later rounds. None: there is no such vector yet."""
        words, looked = self._words, (self._words[_NEWEST], round)
        if looked == self._in_vain:
            return None
        shown = {slot: words[at] for slot, at in _NOTES if words[at] > 0}
        of_round = [slot for slot in shown if words[_note_at(slot) + _ROUND] == round]
        slot = max(of_round or shown, key=lambda slot: shown[slot], default=None)
        if slot is not None:
            at = _note_at(slot)
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

    def holds(self, slot: int, number: int) -> bool:
        """Whether the slot still holds the vector with this number, so that all that was read of it is valid."""
        return self._words[_note_at(slot)] == number

    def tensor(self, slot: int) -> Tensor:
        """The slot as a tensor [n], for reading only: the operating system kills a process that writes to it."""
        return self._there.tensor(slot)

    def mark(self, row: int) -> int:
        """The mark of this row: the round up to which the board's owner has read the vectors of the peer to which the
        row belongs."""
        return self._words[_mark_at(row)]


def _mark_at(row: int) -> int:
    """The word of a mark."""
    return _MARKS_AT // 8 + row * _WORDS


def _note_at(slot: int) -> int:
    """The first word of a note."""
    return _NOTES_AT // 8 + slot * _NOTE_WORDS


def _slot_bytes(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


def _size(nbytes: int) -> int:
    return _HEAD_BYTES + SLOTS * _slot_bytes(nbytes)


_NOTES = [(slot, _note_at(slot)) for slot in range(SLOTS)]
