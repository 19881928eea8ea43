"""A peer process's memory: whether freed memory is kept or returned to the system, and the limit that the user sets.

libzmq keeps a message in memory until its last frame has arrived, and does not limit the number of frames. An admitted
peer can therefore make another one take all the memory of its machine (Z4 in docs/zeromq.md). With a limit on the
process, only that process ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..settings.link_text import parse_size

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_KEPT_BYTES, _LARGE_BYTES = 1 << 30, 64 << 10
_UNUSED_BYTES, _LOOK_S = 48 << 20, 0.25
"""To return it takes 10 ms, and pages that are used again have to be mapped anew."""
_MALLINFO = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


def keep_freed_memory() -> None:
    """Make the C library keep freed memory, up to 1 GiB at a time, instead of returning it to the system.

    Every arriving chunk and every summed vector is a new allocation. If freed memory were returned each time, the
    system would clear and map each page anew, which costs more than the sum (measured: a third of an allreduce of 64
    MiB). Does nothing where the C library is not glibc.
    """
    _set_malloc({_MMAP_THRESHOLD: _KEPT_BYTES, _TRIM_THRESHOLD: _KEPT_BYTES, _TOP_PAD: _KEPT_BYTES // 16})


def return_freed_memory() -> None:
    """Set the C library to return freed memory to the system at once from now on: every block of 64 KiB and more, and
    the free end of the heap when it has 64 KiB. New threads get no heaps of their own any more. Does nothing where the
    C library is not glibc."""
    _set_malloc({_MMAP_THRESHOLD: _LARGE_BYTES, _TRIM_THRESHOLD: _LARGE_BYTES, _TOP_PAD: 0, _ARENA_MAX: 1})


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of <malloc.h>."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO]


class Returns:
    """Returns kept memory (`keep_freed_memory`) to the system when it is called and more than 48 MiB of it are unused;
    it looks at most once in 0.25 s. Tensors are aligned, so glibc often finds no place for one where another of its
    size was freed, and what is kept grows. Does nothing where the C library is not glibc 2.33 or later. Arguments of
    the call are ignored."""

    def __init__(self) -> None:
        self._due_s, self._others_bytes = 0.0, 0
        try:
            libc = ctypes.CDLL("libc.so.6")
            self._trim, self._info = libc.malloc_trim, libc.mallinfo2
            self._info.restype = _Mallinfo
            self._others_bytes = self._unused_bytes()
        except (OSError, AttributeError):
            self._due_s = math.inf

    def __call__(self, *_: object) -> None:
        if (now := time.monotonic()) >= self._due_s:
            self._due_s = now + _LOOK_S
            if self._unused_bytes() > _UNUSED_BYTES:
                self._trim(0)

    def _unused_bytes(self) -> int:
        """Private memory in use by the process, but not for what is allocated; without what was so at the beginning."""
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split())
        info = self._info()
        used = int(info.uordblks) + int(info.hblkhd)
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE") - used - self._others_bytes


def _set_malloc(options: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for option, value in options.items():
        mallopt(option, value)


def limit_memory(limit: str | None) -> None:
    """Limit the private memory of this process, and of each one that it starts, to `limit`, e.g. "8GB"; None: do
    nothing. Called with an event loop running. Shared memory and reserved addresses without memory do not count. A
    callback of the event loop that runs out of memory then ends the process, because it may leave work half done.
    Raises ValueError when the limit is not between the memory that this process has already and the system's own limit,
    or when the system has no such limits."""
    if limit is None:
        return
    if sys.platform != "linux":
        raise ValueError(f"--memory-limit {limit}: there is no such limit on this system, only on Linux: leave it out")
    most, taken, hard = parse_size(limit), _taken_bytes(), resource.getrlimit(resource.RLIMIT_DATA)[1]
    if most <= taken:
        raise ValueError(f"--memory-limit {limit}: this process takes {taken // 10**6} MB already: allow it more")
    if hard != resource.RLIM_INFINITY and most > hard:
        raise ValueError(f"--memory-limit {limit}: this machine allows {hard // 10**6} MB (ulimit -d): allow it less")
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    asyncio.get_running_loop().set_exception_handler(_end_without_memory)


def _taken_bytes() -> int:
    """The bytes of this process that the kernel counts against the limit."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmData:"))
    return int(kib) * 1024


def ran_out(error: BaseException) -> bool:
    """Whether `error` says that an allocation failed: a MemoryError; an error with PyTorch's text for that, which has
    no exception type for it; or, in a process with a memory limit, the error that no thread can be started."""
    words = str(error)
    no_stack = "can't start new thread" in words and bool(memory_hint())
    return isinstance(error, MemoryError) or "can't allocate memory" in words or no_stack


def memory_hint() -> str:
    """The memory limit of this process and the way to raise it, as text for an error; "" if it has none."""
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0] if sys.platform == "linux" else resource.RLIM_INFINITY
    return "" if limit == resource.RLIM_INFINITY else f"; it may take {limit // 10**6} MB (--memory-limit)"


def _end_without_memory(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None or not ran_out(error):
        loop.default_exception_handler(context)
        return
    try:
        print(f"samovar: out of memory{memory_hint()}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)
