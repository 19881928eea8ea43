"""A board: shared memory to which one peer writes, and in which the other peers on its machine read.

    secret, marks, a note for each slot, slots

Only its owner writes to a board. A slot holds one tensor, and its note describes it. The note has the number 0 while
the slot is written, and then a number that it has never had before: a reader that finds the same number before and
after reading has read one whole tensor. A mark tells another peer how far the owner has read on that peer's board, so
that the other may overwrite what was read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import mmap
import os
import secrets
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..limits import SHARED_MEMORY_MEMBERS_MAX
from .segment import LINE_BYTES, SECRET_BYTES, allocate, opened, reserve

ROWS = SHARED_MEMORY_MEMBERS_MAX
"""The number of peers for which a board has marks."""
_MARKS_AT = LINE_BYTES
_NOTES_AT = _MARKS_AT + ROWS * LINE_BYTES
_PAGE = 4096
_WORDS = LINE_BYTES // 8
_NEWEST, _FULL = LINE_BYTES // 8 - 2, LINE_BYTES // 8 - 1
"""Words after the secret: the number of the newest tensor, and whether there is no memory to show further ones."""
_SEAL_FUTURE_WRITE = 0x0010
"""F_SEAL_FUTURE_WRITE of <linux/fcntl.h>: only mappings that exist already can write."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a board, the same for its owner and its readers: `slots` for tensors of the size and dtype of `like`
    [n], each with a note that has `facts` words of 8 bytes behind its number."""

    like: Tensor
    slots: int
    facts: int

    @property
    def slot_bytes(self) -> int:
        return -(-self.like.nbytes // _PAGE) * _PAGE

    @property
    def head_bytes(self) -> int:
        return -(-(_NOTES_AT + 8 * self.slots * self._note_words) // _PAGE) * _PAGE

    @property
    def size(self) -> int:
        return self.head_bytes + self.slots * self.slot_bytes

    @property
    def notes(self) -> list[int]:
        """By slot, the index of its note's first word, in words of 8 bytes from the beginning of the board."""
        return [_NOTES_AT // 8 + slot * self._note_words for slot in range(self.slots)]

    @property
    def _note_words(self) -> int:
        return -(-(1 + self.facts) // _WORDS) * _WORDS


class Mapped:
    """The mapped memory of a board."""

    def __init__(self, mapped: mmap.mmap, form: Form) -> None:
        self.mapped, self._like, self._tensors = mapped, form.like[:0], dict[int, Tensor]()
        self._nbytes, self._slot_bytes, self._head_bytes = form.like.nbytes, form.slot_bytes, form.head_bytes
        self.notes = form.notes
        """By slot, the index of its note's first word in `words`."""
        head = memoryview(mapped)[: form.head_bytes]
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
        """The index in the board of the slot's first byte."""
        return self._head_bytes + slot * self._slot_bytes


class Board:
    """A peer's own board: memory that this peer writes and the other peers on its machine read. Raises OSError where
    there is no memory to share."""

    def __init__(self, form: Form) -> None:
        self.fd = allocate(form.size)
        try:
            reserve(self.fd, 0, form.head_bytes)
            mapped = mmap.mmap(self.fd, form.size)
        except (OSError, ValueError) as error:
            os.close(self.fd)
            raise OSError(f"cannot have a board of {form.size} bytes: {error}") from error
        with contextlib.suppress(OSError):  # Linux before 5.1 has no such seal
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        self._here, self._slot_bytes = Mapped(mapped, form), form.slot_bytes
        self.reserved: dict[int, int] = {}
        """By slot, the bytes for which it has memory; it keeps this memory."""
        self.secret = secrets.token_bytes(SECRET_BYTES)
        mapped[:SECRET_BYTES] = self.secret

    def clear(self, slot: int, nbytes: int | None = None) -> Tensor:
        """The slot as a tensor [n], for the owner to write to: only its first `nbytes` bytes, None: all. From now on
        until `number`, readers find no tensor in the slot. Raises OSError where there is no memory for it; readers see
        that (`Window.full`) until memory is found for a slot."""
        words, needed = self._here.words, self._slot_bytes if nbytes is None else nbytes
        words[self._here.notes[slot]] = 0
        if self.reserved.get(slot, 0) < needed:
            words[_FULL] = 1
            reserve(self.fd, self._here.at(slot), needed)
            words[_FULL] = 0
            self.reserved[slot] = needed
        return self._here.tensor(slot)

    def number(self, slot: int, *facts: int) -> int:
        """Declare the tensor in the slot, which the caller has written since `clear`, complete: readers find it from
        now on. `facts`: numbers for its note, as many as the form has or fewer. Returns the tensor's number, from 1,
        which no tensor on this board has had before."""
        words = self._here.words
        number = words[_NEWEST] + 1
        for at, fact in enumerate(facts, self._here.notes[slot] + 1):
            words[at] = fact
        words[self._here.notes[slot]] = number  # after all else: x86 keeps writes in order
        words[_NEWEST] = number
        return number

    def mark(self, row: int, reached: int) -> None:
        """Write the mark of this row: the board's owner has read, up to `reached`, the board of the peer to which the
        row belongs."""
        self._here.words[_mark_at(row)] = reached

    def close(self) -> None:
        """Close the board: no further peer can open it. A peer that has it mapped can go on reading it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Window:
    """Another peer's board, mapped into this process for reading."""

    def __init__(self, pid: int, fd: int, secret: bytes, form: Form) -> None:
        """Map the board that is open in the process `pid` as the file descriptor `fd`. Raises OSError unless it is a
        board of this form, with this `secret`."""
        with opened(pid, fd, form.size, os.O_RDONLY) as theirs:
            try:
                mapped = mmap.mmap(theirs, form.size, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise OSError(f"cannot map {form.size} bytes: {error}") from error
        if not hmac.compare_digest(mapped[:SECRET_BYTES], secret):
            raise OSError("it has another secret on it")
        self._there = Mapped(mapped, form)
        self._words = self._there.words

    @property
    def full(self) -> bool:
        """Whether the owner has no memory left to put its newest tensors on the board, so that they have to be asked
        for by message."""
        return self._words[_FULL] != 0

    @property
    def newest(self) -> int:
        """The number of the newest tensor; 0: there was none yet. It may have been overwritten."""
        return self._words[_NEWEST]

    def slot_of(self, number: int) -> int | None:
        """The slot that holds the tensor with this number; None: no slot does."""
        return next((slot for slot in range(len(self._there.notes)) if self.holds(slot, number)), None)

    def holds(self, slot: int, number: int) -> bool:
        """Whether the slot still holds the tensor with this number, so that all that was read of it is valid."""
        return self._words[self._there.notes[slot]] == number

    def fact(self, slot: int) -> int:
        """The first of the `facts` that the owner has written in the slot's note (`Board.number`). It is valid if the
        slot `holds` the tensor still afterwards."""
        return self._words[self._there.notes[slot] + 1]

    def tensor(self, slot: int) -> Tensor:
        """The slot as a tensor [n], for reading only: the operating system kills a process that writes to it."""
        return self._there.tensor(slot)

    def mark(self, row: int) -> int:
        """The mark of this row: how far the board's owner has read the board of the peer to which the row belongs."""
        return self._words[_mark_at(row)]


class Lent:
    """A tensor [n] on another peer's board. That peer may overwrite it at any time."""

    def __init__(self, window: Window, slot: int, number: int) -> None:
        self._window, self._slot, self._number = window, slot, number
        self.tensor = window.tensor(slot)
        """The tensor in the shared memory: for reading only, and its values may change."""

    @property
    def intact(self) -> bool:
        """Whether the tensor has not been overwritten, so that all that was read of it until now is valid."""
        return self._window.holds(self._slot, self._number)

    def copied(self) -> Tensor | None:
        """A copy [n] of the tensor. None: it has been overwritten."""
        copy = self.tensor.clone()
        return copy if self.intact else None


def _mark_at(row: int) -> int:
    """The word of a mark."""
    return _MARKS_AT // 8 + row * _WORDS
