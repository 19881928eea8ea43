"""A board: memory in which a peer shows its vectors to the others on its machine, which read them where they lie.

    secret, marks, a note for each slot, slots

Only its owner writes to a board. The note of a slot has the number 0 while the slot is written, and then a number that
it has never had before: a reader that finds the same number before and after has read one vector, whole. The owner's
marks tell the owners of other boards up to which round it has taken their vectors, so that these may write over them.
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
import numpy.typing as npt
import torch
from torch import Tensor

from ...aggregation.periods.policy import STILL
from ..limits import SHARED_MEMORY_MEMBERS_MAX
from ..shared_memory.segment import LINE_BYTES, SECRET_BYTES, allocate, opened, reserve
from .periods import Told

SLOTS = 6
"""Vectors on a board at most: four rounds (`kept`), one that is written, and one that was shown amid a round."""
ROWS = SHARED_MEMORY_MEMBERS_MAX
_MARKS_AT = LINE_BYTES
_NOTES_AT = _MARKS_AT + ROWS * LINE_BYTES
_PAGE = 4096
_WORDS = LINE_BYTES // 8
_NUMBER, _ROUND, _STEP, _LAST, _LOSS, _LEARNING_RATE, _MOVES, _FULL, _LINKS, _MOTION = range(10)
"""The words of a note. `_MOVES`: whether it has a motion, in the words from `_MOTION` on. `_FULL`, in the first note:
whether the owner shows nothing any more, as there is no memory."""
_NOTE_WORDS = -(-(_MOTION + len(STILL)) // _WORDS) * _WORDS
_HEAD_BYTES = -(-(_NOTES_AT + 8 * SLOTS * _NOTE_WORDS) // _PAGE) * _PAGE
_TOLD = [_LOSS, _LEARNING_RATE, *range(_MOTION, _MOTION + len(STILL))]
_SEAL_FUTURE_WRITE = 0x0010
"""F_SEAL_FUTURE_WRITE of <linux/fcntl.h>: only mappings that exist already can write."""
_Words = npt.NDArray[np.int64]
_Reals = npt.NDArray[np.float64]


class Note(NamedTuple):
    """The note of a slot; see `messages.Given`."""

    slot: int
    number: int
    round: int
    step: int
    last: bool
    told: Told


class _Mapped:
    """The mapped memory of a board with vectors of `nbytes`."""

    def __init__(self, mapped: mmap.mmap, nbytes: int) -> None:
        self.mapped, self.slot_bytes = mapped, _slot_bytes(nbytes)
        self.marks: _Words = np.frombuffer(mapped, np.int64, ROWS * _WORDS, _MARKS_AT)[::_WORDS]
        self.words: _Words = np.frombuffer(mapped, np.int64, SLOTS * _NOTE_WORDS, _NOTES_AT).reshape(SLOTS, -1)
        self.reals: _Reals = self.words.view(np.float64)

    def tensor(self, slot: int, like: Tensor) -> Tensor:
        """The slot as a tensor [n], `like` another one."""
        array = np.frombuffer(self.mapped, np.uint8, like.nbytes, _HEAD_BYTES + slot * self.slot_bytes)
        with warnings.catch_warnings():  # PyTorch has no tensors that cannot be written to
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array).view(like.dtype)


class Board:
    """The owner's side. Raises OSError where there is no memory to share."""

    def __init__(self, nbytes: int) -> None:
        size = _size(nbytes)
        self.fd = allocate(size)
        try:
            reserve(self.fd, 0, _HEAD_BYTES)
            mapped = mmap.mmap(self.fd, size)
        except (OSError, ValueError) as error:
            os.close(self.fd)
            raise OSError(f"cannot have a board of {size} bytes: {error}") from error
        with contextlib.suppress(OSError):  # Linux before 5.1 has no such seal
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        self._here, self._reserved = _Mapped(mapped, nbytes), set[int]()
        self._number = 0
        self.secret = secrets.token_bytes(SECRET_BYTES)
        mapped[:SECRET_BYTES] = self.secret

    def clear(self, slot: int, like: Tensor) -> Tensor:
        """The slot as a tensor [n], `like` another one, to write a vector to, which no reader takes for whole until
        `show`. Raises OSError where there is no memory for it."""
        self._here.words[slot, _NUMBER] = 0
        if slot not in self._reserved:
            try:
                reserve(self.fd, _HEAD_BYTES + slot * self._here.slot_bytes, self._here.slot_bytes)
            except OSError:
                self._here.words[0, _FULL] = 1
                raise
            self._reserved.add(slot)
            self._here.words[0, _FULL] = 0
        return self._here.tensor(slot, like)

    def show(self, slot: int, round: int, step: int, last: bool, told: Told) -> int:
        """The vector in the slot is whole. Returns its number."""
        words, reals = self._here.words[slot], self._here.reals[slot]
        self._number += 1
        words[_ROUND], words[_STEP], words[_LAST] = round, step, last
        reals[_LOSS], reals[_LEARNING_RATE], words[_MOVES] = told.loss, told.learning_rate, bool(told.motion)
        words[_LINKS], reals[_MOTION : _MOTION + len(told.motion)] = told.links, told.motion
        words[_NUMBER] = self._number  # the last: x86 keeps writes in order
        return self._number

    def mark(self, row: int, round: int) -> None:
        """Tell the peer that reads this row up to which round this peer has taken its vectors."""
        self._here.marks[row] = round

    def close(self) -> None:
        """Nobody can open the board from now on. Whoever has mapped it keeps it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Window:
    """A reader's side of another peer's board."""

    def __init__(self, pid: int, fd: int, secret: bytes, nbytes: int) -> None:
        """Raises OSError unless the process `pid` has as `fd` a board for vectors of `nbytes` with this secret."""
        size = _size(nbytes)
        with opened(pid, fd, size, os.O_RDONLY) as theirs:
            try:
                mapped = mmap.mmap(theirs, size, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise OSError(f"cannot map {size} bytes: {error}") from error
        if not hmac.compare_digest(mapped[:SECRET_BYTES], secret):
            raise OSError("it has another secret on it")
        self._there, self._tensors = _Mapped(mapped, nbytes), dict[int, Tensor]()

    @property
    def full(self) -> bool:
        """Whether the owner cannot show its newest vectors."""
        return bool(self._there.words[0, _FULL])

    def find(self, round: int) -> Note | None:
        """The vector of `round`; or the newest one, if it is of a later round or stands for all later ones; None: there
        is none yet."""
        numbers_rounds = self._there.words[:, : _LAST + 1].tolist()
        newest = max(range(SLOTS), key=lambda slot: numbers_rounds[slot][_NUMBER])
        of_round = [slot for slot, words in enumerate(numbers_rounds) if words[_NUMBER] > 0 and words[_ROUND] == round]
        if of_round:
            slot = max(of_round, key=lambda slot: numbers_rounds[slot][_NUMBER])
        elif numbers_rounds[newest][_NUMBER] > 0 and (
            numbers_rounds[newest][_ROUND] > round or numbers_rounds[newest][_LAST]
        ):
            slot = newest
        else:
            return None
        number, of, step, last = numbers_rounds[slot]
        loss, learning_rate, *motion = self._there.reals[slot, _TOLD].tolist()
        moves, links = self._there.words[slot, [_MOVES, _LINKS]].tolist()
        told = Told(loss, learning_rate, tuple(motion) if moves else (), links)
        note = Note(slot, number, of, step, bool(last), told)
        return note if self.holds(note.slot, note.number) else None

    def holds(self, slot: int, number: int) -> bool:
        """Whether the slot still has the vector with this number."""
        return bool(self._there.words[slot, _NUMBER] == number)

    def tensor(self, slot: int, like: Tensor) -> Tensor:
        """The slot as a tensor [n], `like` another one: whoever writes to it is killed."""
        if slot not in self._tensors:
            self._tensors[slot] = self._there.tensor(slot, like)
        return self._tensors[slot]

    def mark(self, row: int) -> int:
        """The round up to which the owner has taken the vectors of the peer whose row it is."""
        return int(self._there.marks[row])


def _slot_bytes(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


def _size(nbytes: int) -> int:
    return _HEAD_BYTES + SLOTS * _slot_bytes(nbytes)
