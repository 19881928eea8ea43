"""A peer that joined and is started again, with its key and in its folder, goes on with its records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from boards import committed, happened
from simulated import simulate

from samovar.peers.checkpoints.votes import votes_folder
from samovar.peers.launch.join_target import JoinTarget, open_at
from samovar.peers.launch.run_folder import conclude
from samovar.peers.launch.session import Session
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord
from samovar.peers.records.result import Lost
from samovar.peers.records.run import RESULT_FILE
from samovar.peers.records.tally import Tally
from samovar.peers.run_settings.settings import Settings
from samovar.peers.training.stop import Stop
from samovar.protocols.clock import RunClock


@dataclass
class Target:
    """The target of a run, of which no peer has to be there."""

    contact: str = "contact"
    address: str = "tcp://192.0.2.1:4"
    endpoint: Any = field(default_factory=lambda: SimpleNamespace(id="me", budget=None, abort=lambda: None))

    async def enter(self, settings: Settings) -> Any:
        return self.endpoint

    async def ask_run(self, endpoint: Any) -> Any:
        return SimpleNamespace(run="run", settings=Settings().agreed())


def started(folder: Path) -> Session:
    target = cast(JoinTarget, Target())
    return asyncio.run(open_at(target, Settings(run=str(folder)), Stop(), name="me", task=Path("task.py")))


def test_the_clock_of_its_records_goes_on_where_they_end(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert started(folder).place.former_s == 0.0
    votes_folder(folder, "run", "me").mkdir(parents=True)
    with RecordFile(folder, "me") as file:
        file.append(committed("me", 9, time_s=14.75))
    assert started(folder).place.former_s == 14.75


def come_back(folder: Path, last: EventRecord | None, *, concluded: bool = False) -> tuple[Lost, ...]:
    """The losses in the result of a peer that is started again. `last`: the last event of its first process, None: it
    joined, and then was killed."""
    first = [
        happened("me", "joined"),
        committed("me", 9, time_s=14.75),
        *([replace(last, time_s=15.0)] if last else []),
    ]
    votes_folder(folder, "run", "me").mkdir(parents=True)
    with RecordFile(folder, "me") as file:
        for one in first:
            file.append(one)
    if concluded:
        (folder / RESULT_FILE).write_text(conclude(folder, Tally(first), wall_s=15.0).to_json())
    session = started(folder)
    file, record = session.recorder()
    with file:
        record(replace(happened("me", "joined"), time_s=20.0))
    return conclude(folder, Tally(), wall_s=30.0).lost


@pytest.mark.parametrize(
    ("last", "when", "why"),
    [(None, 14.75, "its process ended without a word"), (happened("me", "error", why="its disk"), 15.0, "its disk")],
)
def test_its_result_tells_that_its_former_process_was_lost(
    tmp_path: Path, last: EventRecord | None, when: float, why: str
) -> None:
    assert come_back(tmp_path / "mine", last) == (Lost(peer="me", when=when, why=why, back=True),)


def test_a_process_that_had_ended_in_good_order_was_not_lost(tmp_path: Path) -> None:
    assert come_back(tmp_path / "stopped", happened("me", "stopped")) == ()
    assert come_back(tmp_path / "left", None, concluded=True) == (), "as a script that has left"


def test_a_clock_that_goes_on_is_not_that_of_a_resumed_run() -> None:
    async def main() -> list[float]:
        clock = RunClock(former_s=14.75)
        told = [clock.before_s, clock.elapsed_s]
        await asyncio.sleep(3)
        clock.start()
        await asyncio.sleep(2)
        return [*told, clock.elapsed_s]

    assert simulate(main()) == [0.0, 14.75, 16.75]


def test_members_that_it_does_not_find_any_more_had_left() -> None:
    def told(event: EventRecord, at_s: float) -> EventRecord:
        return EventRecord(peer="me", time_s=at_s, event=event.event, about=event.about)

    lives = [
        *(told(happened("me", "present", about=name), 1.0) for name in ("stays", "goes")),
        told(happened("me", "joined"), 20.0),
        told(happened("me", "present", about="stays"), 20.0),
    ]
    found = {one.peer: (one.gone, one.gone_s) for one in Tally([told(happened("me", "joined"), 1.0), *lives]).elsewhere}
    assert found == {"stays": ("", None), "goes": ("left", 20.0)}
