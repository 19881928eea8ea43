"""The name of a process, by which its user finds it in a list of processes and kills it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def name_process(name: str) -> None:
    """Call this process "samovar `name`". Linux keeps the first 15 bytes; elsewhere this does nothing."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_bytes(f"samovar {name}".encode())
