"""How a peer's process treats its memory, and the limit that its user sets to it.

libzmq keeps a message in memory until its last frame is there, and has no limit to the frames: whoever was let in can
make it take all the memory of a machine (Z4). A limit to the process ends this peer instead, and no other.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

from ..settings.link_text import parse_size

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, up to 1 GiB at a time, instead of giving it back to the system.

    Every chunk that arrives and every vector that is summed is new memory: given back each time, the system would
    clear and map each page of it anew, which costs more than the sum (measured: a third of an allreduce of 64 MiB).
    Where the C library is not glibc nothing is done.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_TOP_PAD, _KEPT_BYTES // 16)


def limit_memory(limit: str | None) -> None:
    """Have this process, and each that it starts, take so much memory of its own at most: what it computes with, not
    what it shares or has only reserved addresses for. A callback of the running loop that lacks memory leaves something
    half done, so it ends the process. Raises ValueError where there is no such limit."""
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
    """What the kernel holds against the limit."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmData:"))
    return int(kib) * 1024


def ran_out(error: BaseException) -> bool:
    """Whether memory could not be had; PyTorch has no error of its own for that, nor Python for a thread's stack."""
    words = str(error)
    no_stack = "can't start new thread" in words and bool(memory_hint())
    return isinstance(error, MemoryError) or "can't allocate memory" in words or no_stack


def memory_hint() -> str:
    """The limit of this process, and how to raise it; "" where it has none."""
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
