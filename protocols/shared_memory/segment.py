"""A memory segment that several processes of one user on one machine have mapped.

It is a file without a name, so it is freed when the last process that has mapped it ends, however that process ends.
Another process opens it through /proc, which admits the same user only, and finds in it a secret that it was told over
an authenticated link. This proves that both are on the same machine; no peer's claim is trusted. A segment is sealed:
no process can make it smaller, which would kill each process that reads the missing pages.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..limits import SHARED_MEMORY_MEMBERS_MAX

SECRET_BYTES = 32
LINE_BYTES = 64
"""A cache line."""
_WORDS = LINE_BYTES // 8
_FLAGS = 3
_FLAGS_BYTES = SHARED_MEMORY_MEMBERS_MAX * _FLAGS * LINE_BYTES
_HEAD_BYTES = SECRET_BYTES * 2 + SHARED_MEMORY_MEMBERS_MAX * SECRET_BYTES + _FLAGS_BYTES
_SEALS = 0x0002 | 0x0004
"""F_SEAL_SHRINK and F_SEAL_GROW of <linux/fcntl.h>."""
Flags = npt.NDArray[np.int64]


def allocate(nbytes: int) -> int:
    """The descriptor of a new segment of `nbytes` zero bytes, whose size can never change. It takes no memory until
    `reserve` or a write. Raises OSError."""
    fd = os.memfd_create("samovar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except (OSError, ValueError) as error:
        os.close(fd)
        raise OSError(f"cannot have {nbytes} bytes of shared memory: {error}") from error
    return fd


def reserve(fd: int, start: int, nbytes: int) -> None:
    """Allocate memory for `nbytes` of a segment from byte `start` on. Raises OSError when there is no memory, and when
    it would take more than half of the free memory: a process that touches a page for which there is no memory is
    killed."""
    if nbytes > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
        raise OSError(f"{nbytes} bytes of shared memory are more than half of what is free")
    try:
        os.posix_fallocate(fd, start, nbytes)
    except ValueError as error:
        raise OSError(f"cannot have {nbytes} bytes of shared memory: {error}") from error


@contextmanager
def opened(pid: int, fd: int, nbytes: int, how: int) -> Iterator[int]:
    """While in this context, the memory segment that the process `pid` has open as its descriptor `fd` is open here
    too, and the value is its descriptor in this process. The context closes it; a mapping made from it stays. `nbytes`:
    size of the whole file, with any header. `how`: os.O_RDWR or os.O_RDONLY. Raises OSError when it cannot be opened,
    is no segment, has another size, or is not sealed against every change of its size."""
    path = f"/proc/{pid}/fd/{fd}"
    if not os.readlink(path).startswith("/memfd:samovar"):
        raise OSError(f"{path} is no shared memory of a peer")
    theirs = os.open(path, how | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.fstat(theirs).st_size != nbytes:
            raise OSError(f"{path} has another size")
        if fcntl.fcntl(theirs, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise OSError(f"{path} may change its size")
        yield theirs
    finally:
        os.close(theirs)


class Segment:
    """A mapped segment: a header with the secret and each member's proof and flags, followed by `nbytes` of shared
    data."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self._map = mmap.mmap(fd, _HEAD_BYTES + nbytes)
        self.nbytes = nbytes
        lines = np.frombuffer(self._map, np.int64, _FLAGS_BYTES // 8, _HEAD_BYTES - _FLAGS_BYTES)
        self.flags: Flags = lines.reshape(_FLAGS, SHARED_MEMORY_MEMBERS_MAX, _WORDS)[:, :, 0]
        """Three flags of each member, [3, member], each in a cache line of its own."""

    @classmethod
    def create(cls, nbytes: int) -> tuple[Segment, int]:
        """A new segment with `nbytes` of shared data, all zero, and its descriptor. Other processes can open it by that
        descriptor until the caller closes it. Raises OSError, also when the segment would take more than half of the
        free memory."""
        fd = allocate(_HEAD_BYTES + nbytes)
        try:
            reserve(fd, 0, _HEAD_BYTES + nbytes)
            segment = cls(fd, nbytes)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise OSError(f"cannot have {nbytes} bytes of shared memory: {error}") from error
        segment._map[:SECRET_BYTES] = secrets.token_bytes(SECRET_BYTES)
        return segment, fd

    @classmethod
    def attach(cls, pid: int, fd: int, secret: bytes, nbytes: int) -> Segment:
        """Map the segment that the process `pid` has open as the descriptor `fd`. Raises OSError unless it has `nbytes`
        of shared data and contains `secret`."""
        with opened(pid, fd, _HEAD_BYTES + nbytes, os.O_RDWR) as theirs:
            segment = cls(theirs, nbytes)
        if not hmac.compare_digest(segment.secret, secret):
            raise OSError("it has another secret in it")
        return segment

    @property
    def secret(self) -> bytes:
        """The secret at the beginning of the segment, 32 bytes."""
        return bytes(self._map[:SECRET_BYTES])

    def prove(self, rank: int) -> None:
        """Write the proof that the member of rank `rank` has mapped the segment."""
        at = SECRET_BYTES * (2 + rank)
        self._map[at : at + SECRET_BYTES] = self._proof(rank)

    def proven(self, rank: int) -> bool:
        """Whether the proof of the member of rank `rank` is there."""
        at = SECRET_BYTES * (2 + rank)
        return hmac.compare_digest(bytes(self._map[at : at + SECRET_BYTES]), self._proof(rank))

    def _proof(self, rank: int) -> bytes:
        return hashlib.blake2b(self.secret, digest_size=SECRET_BYTES, person=rank.to_bytes(8, "big")).digest()

    def array(self, dtype: np.dtype[Any], start_bytes: int, count: int) -> npt.NDArray[Any]:
        """An array of `count` elements that lies in the shared data, from its byte `start_bytes` on."""
        return np.frombuffer(self._map, dtype, count, _HEAD_BYTES + start_bytes)
