"""The identity of this machine, by which two processes know that they may share memory. It imports nothing heavy: the
transport needs it in commands that do without PyTorch."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """An id that is equal for all processes of this user on this machine, in one PID namespace (one container), until
    it is rebooted; "": memory cannot be shared here. Sharing needs that each core sees another core's writes in the
    order in which they were made: x86 guarantees this, ARM does not."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not hasattr(os, "memfd_create") or platform.machine() not in ("x86_64", "AMD64") or not boot.exists():
        return ""
    namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.blake2b(f"{boot.read_text()}{namespace}{os.getuid()}".encode(), digest_size=8).hexdigest()
