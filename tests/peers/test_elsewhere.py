"""Peers that joined from other machines are in the result, with what those here saw of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from boards import committed
from rich.console import Console
from test_trainer import noisy_task

from samovar.peers.cli.final_table import final_table
from samovar.peers.launch.run_folder import conclude
from samovar.peers.records.elsewhere import Elsewhere
from samovar.peers.records.event_names import EventName
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.records.result import Result
from samovar.peers.records.run import RESULT_FILE, read_run
from samovar.peers.records.tally import Tally
from samovar.peers.records.units import left_behind_text, stay_text
from samovar.peers.report.write import page
from samovar.peers.run_settings.settings import Settings
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

LATE = "3"


def of_the_first_three(folder: Path, faults: tuple[Fault, ...]) -> tuple[Result, list[ExchangeRecord]]:
    """How a run of three ended that a fourth has joined, as the folder of those three tells it; and their rounds."""
    records: list[Record] = []
    plain = Scenario.plain(Settings(device="cpu", link="100mbit,5ms", peers=3, period="2", steps=200, patience_s=1.0))
    group = dataclasses.replace(plain.groups[0], peers=4, step_s=0.05)
    scenario = dataclasses.replace(plain, groups=(group,), arrivals=((3, 1.0),), faults=faults)
    run_virtual(World(noisy_task(), scenario, records.append).run())
    here = [record for record in records if record.peer != LATE]
    for peer in sorted({record.peer for record in here}):
        with RecordFile(folder, peer) as file:
            for record in here:
                if record.peer == peer:
                    file.append(record)
    rounds = [record for record in here if isinstance(record, ExchangeRecord)]
    return conclude(folder, Tally(), wall_s=1.0), rounds


def test_members_that_do_not_answer_are_named_where_too_few_do() -> None:
    records: list[Record] = []
    plain = Scenario.plain(Settings(device="cpu", link="100mbit,5ms", peers=2, period="2", steps=40, patience_s=1.0))
    group = dataclasses.replace(plain.groups[0], peers=2, step_s=0.05)
    freeze = Fault(kind=Kind.PAUSE, who=(1,), at_s=1.0, for_s=5.0)
    run_virtual(
        World(noisy_task(), dataclasses.replace(plain, groups=(group,), faults=(freeze,)), records.append).run()
    )
    told = [(one.peer, one.event, one.about) for one in records if isinstance(one, EventRecord)]
    assert told.index(("0", "silent", "1")) == told.index(("0", "waiting", "")) + 1
    assert ("0", "lost", "1") not in told


@pytest.mark.parametrize("crashes", [False, True])
def test_a_peer_from_another_machine_is_in_the_result_and_the_report(tmp_path: Path, crashes: bool) -> None:
    faults = (Fault(kind=Kind.CRASH, who=(3,), at_step=40),) if crashes else ()
    result, rounds = of_the_first_three(tmp_path, faults)
    (one,) = result.elsewhere
    with_it = {record.version for record in rounds if record.members == 4}
    assert (one.peer, one.exchanges) == (LATE, len(with_it))
    assert 0 < one.joined_s < max(record.time_s for record in rounds)
    assert len(result.peers) == 3
    said = f"in {one.exchanges} rounds from "
    if crashes:
        assert (one.gone, one.why) == ("lost", result.lost[0].why)
        assert one.gone_s is not None
        assert one.gone_s > one.joined_s
    else:
        assert (one.gone, one.gone_s, one.why) == ("", None, "")
    console = Console(width=200)
    with console.capture() as shown:
        console.print(final_table(result))
    assert "3 peers on this machine, 1 elsewhere" in shown.get()
    assert f"elsewhere {LATE}: {said}" in shown.get()
    assert (" s on, a member at the end" in shown.get()) != crashes
    assert said in page(read_run(tmp_path), ""), "a run that was killed has no result"
    (tmp_path / RESULT_FILE).write_text(result.to_json())
    assert read_run(tmp_path).result == result
    shown_page = page(read_run(tmp_path), "")
    assert said in shown_page
    assert ("No peer was lost, and no round had to do without one." in shown_page) != crashes


def test_a_peer_that_was_there_within_a_second_was_there_from_the_first_record_on() -> None:
    early, late = (Elsewhere(peer="2", exchanges=684, joined_s=joined_s) for joined_s in (0.00078, 1.5))
    assert stay_text(early, "exchange") == "in 684 exchanges from the first record here on, a member at the end"
    assert stay_text(late, "round") == "in 684 rounds from 1.50 s on, a member at the end"


def test_a_peer_elsewhere_does_not_belong_to_a_run_that_is_resumed_without_it() -> None:
    def happened(event: EventName, time_s: float, generation: int, about: str = "") -> EventRecord:
        return EventRecord(peer="a", time_s=time_s, event=event, about=about, generation=generation)

    def round_(version: int, generation: int) -> ExchangeRecord:
        return committed("a", version, details={"round": version, "generation": generation, "period": 8})

    stopped = [happened("started", 0, 1), happened("joined", 3, 2, LATE), round_(1, 2), happened("stopped", 9, 2)]
    (one,) = Tally(stopped).elsewhere
    assert (one.gone, one.exchanges) == ("", 1)
    assert left_behind_text([one], resumable=True).startswith(f"{LATE} joined from elsewhere and may train on")
    resumed = [*stopped, happened("resumed", 9.5, 1), round_(2, 1), happened("joined", 12, 2, "b"), round_(3, 2)]
    one, other = Tally(resumed).elsewhere
    assert (one.gone, one.gone_s, one.why) == ("left", 9.5, "the run was resumed without it")
    assert (one.exchanges, other.exchanges) == (1, 1)
    assert left_behind_text([one], resumable=True) == ""
    again = Tally([*resumed, happened("joined", 15, 3, LATE), round_(4, 3)]).elsewhere
    assert [(each.gone, each.exchanges) for each in again] == [("", 2), ("", 2)]


@pytest.mark.parametrize(
    ("entries", "versions", "counts"),
    [
        ([("started", "w")], [10, 20, 25], {"w": 25}),
        ([("joined", "w")], [950, 960], {"w": 11}),
        ([("started", "w"), ("resumed", "v")], [10, 20, 12, 15], {"w": 20, "v": 4}),
    ],
)
def test_a_servers_records_count_all_exchanges_of_those_elsewhere_since_its_last_one(
    entries: list[tuple[EventName, str]], versions: list[int], counts: dict[str, int]
) -> None:
    """A server that joins does not know when its first exchange began, nor one that is resumed."""
    records = list[Record]()
    for number, (entry, about) in enumerate(entries):
        own = EventRecord(peer="s", time_s=0.0, event=entry, role="server", generation=3 - number)
        records += [own, dataclasses.replace(own, event="present", about=about)]
        for version in versions[2 * number : None if len(entries) == 1 else 2 * number + 2]:
            records.append(committed("s", version, details={}))
    assert {one.peer: one.exchanges for one in Tally(records).elsewhere} == counts


def test_of_the_exchanges_of_a_servers_record_a_peer_elsewhere_has_those_while_it_was_a_member() -> None:
    """As the workers' own records have it, which tell of one exchange each."""
    far = EventRecord(peer="s", time_s=3.5, event="joined", about="w", role="server")
    gone = dataclasses.replace(far, event="lost", time_s=6.2)
    records: list[Record] = [committed("s", 10 * at, time_s=float(at), details={}) for at in range(1, 9)]
    started = EventRecord(peer="s", time_s=0.0, event="started", role="server")
    tally = Tally(sorted([started, *records, far, gone], key=lambda record: record.time_s))
    assert [(one.peer, one.exchanges) for one in tally.elsewhere] == [("w", 5 + 10 + 10 + 2)]


def test_the_line_of_peers_that_are_left_behind_names_three() -> None:
    many = [Elsewhere(peer=f"p{number}", exchanges=1, joined_s=1.0) for number in range(5)]
    assert left_behind_text(many, resumable=True).startswith("p0, p1, p2, 2 more joined from elsewhere")


def test_nothing_is_said_of_resuming_the_run_of_a_script() -> None:
    one = Elsewhere(peer="late", exchanges=1, joined_s=1.0)
    assert left_behind_text([one], resumable=False) == "late joined from elsewhere and may train on"


def test_a_peer_is_gone_and_back_also_where_too_few_are_left_for_another_view() -> None:
    """All is told in one view, and so it is where a view has the peer in another life."""
    events: tuple[EventName, ...] = ("joined", "lost", "back", "lost", "joined", "lost")
    tally, gone = Tally(), list[str]()
    for at, event in enumerate(events):
        tally.update(EventRecord(peer="0", time_s=float(at), event=event, about="far", generation=2, why="silent"))
        gone.append(tally.elsewhere[0].gone)
    assert gone == ["", "lost", "", "lost", "", "lost"]
