"""Paxos votes on disk: a peer that was given a key file keeps its votes across restarts (`protocols.members.ledger`).

The votes are in the peer's run folder, in a subfolder named by a hash of the run's name and the peer's key, so a peer
that is started again with both finds them. Each vote is a file. A new version is written beside the old one, flushed,
and then renamed over it.
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
    """The folder of the votes of `peer` in `run`, inside the run folder `folder`."""
    return folder / "votes" / hashlib.blake2b(f"{run}\n{peer}".encode(), digest_size=8).hexdigest()


class Votes:
    """A `Store` of votes whose entries are files in `folder`. Another thread writes them, because a disk may be busy. A
    save that was begun before `clear` is dropped."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self._cleared = folder, threading.Lock(), 0

    def load(self, name: str) -> bytes | None:
        """The entry last saved under `name`; None when there is none, or when it cannot be read."""
        with contextlib.suppress(OSError):
            return (self._folder / name).read_bytes()
        return None

    async def save(self, name: str, entry: bytes) -> None:
        """Write an entry to the disk under `name`, and wait until it is there. Raises OSError; the entry on the disk is
        then the previous one or the new one, and after a power failure perhaps the other of these. The peer may answer
        by neither before `clear` has removed both (`Ledger`). When `clear` is called before the write begins, nothing
        is written and no error raised."""
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
        """Remove all entries, also those whose removal an earlier call could not flush. Raises OSError; after a power
        failure entries may then be there again, and a further call is needed."""
        with self._lock:
            self._cleared += 1
            if not self._folder.is_dir():
                return
            self._flush()  # what an earlier call has removed is gone for good before anything more is
            for entry in sorted(self._folder.iterdir(), key=lambda entry: entry.name != "seat"):
                entry.unlink()  # the seat first: without it the others are void
                self._flush()

    def _flush(self) -> None:
        """Flush the folder, so that renames and removals outlive a power failure."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
