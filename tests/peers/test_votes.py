"""Votes on disk: what was removed does not come back."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from samovar.peers.checkpoints.votes import Votes
from samovar.protocols.members.ledger import Ledger, Vote
from samovar.protocols.members.view import Version


def test_a_vote_that_was_begun_before_all_were_removed_is_not_written_after_it(tmp_path: Path) -> None:
    """The disk is busy meanwhile."""
    votes, free = Votes(tmp_path), threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, free.wait)
        saving = asyncio.create_task(votes.save("ballot", b"of a former life"))
        await asyncio.sleep(0)  # it is begun
        votes.clear()
        free.set()
        await asyncio.gather(busy, saving)
        assert votes.load("ballot") is None
        await votes.save("ballot", b"of this life")
        assert votes.load("ballot") == b"of this life"

    asyncio.run(main())


async def test_the_seat_is_removed_before_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may end between two removals: votes without a seat are void, a seat without its votes is not."""
    votes, removed, unlink = Votes(tmp_path), list[str](), Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        removed.append(path.name)
        unlink(path, missing_ok)

    for name in ("ballot", "seat", "vote"):
        await votes.save(name, b"of this life")
    monkeypatch.setattr(Path, "unlink", noted)
    votes.clear()
    assert (removed[0], sorted(removed)) == ("seat", ["ballot", "seat", "vote"])


class Disk:
    """A disk on which a folder cannot be flushed while it is `broken`, though what is renamed or removed in it is seen
    at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken, self._fsync = False, os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, fd: int) -> None:
        if self.broken and os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(5, "Input/output error")
        self._fsync(fd)


async def test_a_member_answers_after_a_vote_of_unknown_fate_only_once_all_votes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new vote is in its place, and may not be there after a power failure. Then the one before would be."""
    disk, answers = Disk(monkeypatch), list[int]()
    votes = Votes(tmp_path)
    ledger = Ledger(votes)
    ledger.keep(Vote(1, 1, Version(1, 11)), lambda: answers.append(1))
    await ledger.synced()
    disk.broken = True
    with pytest.raises(OSError, match="Input/output"):
        await votes.save("vote", b"in its place")
    assert votes.load("vote") == b"in its place"
    await ledger.on_record(Vote(1, 1, Version(2, 22)))
    ledger.keep(Vote(1, 1, Version(3, 33)), lambda: answers.append(3))
    await ledger.on_record(Vote(1, 1, Version(4, 44)))
    assert answers == [1], "it can neither keep a vote nor be sure that those before are gone"
    disk.broken = False
    ledger.keep(Vote(1, 1, Version(5, 55)), lambda: answers.append(5))
    await ledger.synced()
    assert answers == [1, 5]


async def test_votes_are_not_called_removed_before_their_removal_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried, and though the folder looks empty: after a power failure they may be back."""
    disk, votes = Disk(monkeypatch), Votes(tmp_path)
    await votes.save("seat", b"of this life")
    disk.broken = True
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            votes.clear()
    disk.broken = False
    votes.clear()
    assert votes.load("seat") is None
