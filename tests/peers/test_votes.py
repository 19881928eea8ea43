"""Votes on disk: what was removed does not come back."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from samovar.peers.checkpoints.votes import Votes


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
