"""Votes: where a peer that has a key of its own keeps its word for its next life (`protocols.members.ledger`).

In its run folder, under a name made of the run and the key: started again with both it finds it. Each entry is a file,
written beside the old one, flushed, and then put in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from pathlib import Path

from ...protocols.transport import PeerId


def votes_folder(folder: Path, run: str, peer: PeerId) -> Path:
    """Where that peer keeps its votes in that run, in a run folder."""
    return folder / "votes" / hashlib.blake2b(f"{run}\n{peer}".encode(), digest_size=8).hexdigest()


class Votes:
    """A `Store`. Files are written in another thread, as a disk may be busy; what is cleared stays so."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self._cleared = folder, threading.Lock(), 0

    def load(self, name: str) -> bytes | None:
        """What was saved last under `name`; None: nothing that can be read."""
        with contextlib.suppress(OSError):
            return (self._folder / name).read_bytes()
        return None

    async def save(self, name: str, entry: bytes) -> None:
        """Raises OSError; what was saved before is still there then."""
        await asyncio.get_running_loop().run_in_executor(None, self._save, name, entry, self._cleared)

    def _save(self, name: str, entry: bytes, cleared: int) -> None:
        with self._lock:
            if cleared != self._cleared:
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            beside = self._folder / f"{name}.tmp"
            with beside.open("wb") as file:
                file.write(entry)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._folder / name)
            self._flush()

    def clear(self) -> None:
        """Remove all entries. Raises OSError."""
        with self._lock:
            self._cleared += 1
            if not self._folder.is_dir():
                return
            for entry in sorted(self._folder.iterdir(), key=lambda entry: entry.name != "seat"):
                entry.unlink()  # the seat first: without it the others count for nothing
                self._flush()

    def _flush(self) -> None:
        """Make new names, and the lack of old ones, outlive a power failure."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
