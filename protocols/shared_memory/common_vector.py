"""A vector that several processes on one machine read and write at the same time, without any order between them.

`Memories` is the port by which a peer makes and finds such vectors on its machine. Real ones lie in a segment
(`segment`): a secret, then the vector. Each process keeps the segment open, so each can let further processes in. It is
freed when the last process that has it ends, however that process ends.
"""

from __future__ import annotations

import fcntl
import hmac
import mmap
import os
import secrets
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .segment import SECRET_BYTES, allocate, opened, reserve

_AT = 4096
"""The first byte of the vector, at the beginning of a page."""


class Where(NamedTuple):
    """The place of a segment on its machine: the process `pid` has it open as the descriptor `fd`. `secret`: the bytes
    at its beginning."""

    pid: int
    fd: int
    secret: bytes


class CommonVector(Protocol):
    """One peer's side of a common vector. As a context it is a lock: one peer at a time is in it, and a peer that ends
    leaves it. To enter it blocks the thread until it is free. Reads and writes outside of it are not prevented."""

    @property
    def vector(self) -> Tensor:
        """The vector [n] itself, not a copy."""
        ...

    @property
    def where(self) -> Where:
        """The place by which other peers on the machine find it, until `close`."""
        ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None:
        """Let no further peer in by `where`. All peers that have the vector keep it, this one too; but this one cannot
        take the lock any more."""
        ...


class Memories(Protocol):
    """The memory of one machine."""

    def create(self, initial: Tensor) -> CommonVector:
        """A new common vector, which begins as a copy of `initial` [n]. Raises OSError where there is no memory to
        share."""
        ...

    def attach(self, where: Where, like: Tensor) -> CommonVector:
        """The common vector at `where`, of the size and dtype of `like` [n], whose values are not used. Raises OSError
        when there is no such vector on this machine: none that is open there, of that size, with that secret."""
        ...


class MachineMemory:
    """The memory of the machine on which this process runs, as `Memories`."""

    def create(self, initial: Tensor) -> CommonVector:
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memory that processes can share (memfd_create)")
        size = _AT + initial.nbytes
        fd = allocate(size)
        try:
            reserve(fd, 0, size)
        except OSError:
            os.close(fd)
            raise
        secret = secrets.token_bytes(SECRET_BYTES)
        made = _Mapped(fd, initial, secret)
        made.mapped[:SECRET_BYTES] = secret
        made.vector.copy_(initial)
        return made

    def attach(self, where: Where, like: Tensor) -> CommonVector:
        with opened(where.pid, where.fd, _AT + like.nbytes, os.O_RDWR) as theirs:
            found = _Mapped(os.dup(theirs), like, where.secret)
        if not hmac.compare_digest(found.mapped[:SECRET_BYTES], where.secret):
            found.close()
            raise OSError("it has another secret in it")
        return found


class _Mapped:
    """A mapped segment for a vector like `like` [n]. It owns the descriptor `fd`. Raises OSError."""

    def __init__(self, fd: int, like: Tensor, secret: bytes) -> None:
        self._fd = fd
        try:
            self.mapped = mmap.mmap(fd, _AT + like.nbytes)
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(f"cannot map {like.nbytes} bytes of shared memory: {error}") from error
        self.vector = torch.frombuffer(self.mapped, dtype=like.dtype, count=like.numel(), offset=_AT)
        self.where = Where(os.getpid(), fd, secret)

    def __enter__(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
