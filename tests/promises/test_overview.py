"""What a report makes of the records: who was lost when, one curve, and how each round was spent."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from synthetic import WHY, in_memory, synthetic_records

from samovar.peers.records.event_names import EventName
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.records.run import Run
from samovar.peers.report.charts import absence_marks, time_axis
from samovar.peers.report.curves import curve, differ
from samovar.peers.report.overview import Absence, absences, standstills
from samovar.peers.report.tables import missing_table, standstill_table
from samovar.peers.report.timeline import slots


def test_a_loss_that_three_peers_tell_of_is_one_loss(run: Run) -> None:
    (carol,) = absences(run)
    assert (carol.peer, len(carol.lost_s), carol.missed, carol.back) == ("carol", 1, 21, False)
    assert carol.address == "10.0.0.3:7001"


def test_a_report_advises_what_to_do_about_a_lost_peer_only_while_it_can_be_done(run: Run) -> None:
    (carol,) = absences(goes_on := dataclasses.replace(run, result=None))
    assert carol.advice == "start it again: it catches up"
    assert "What to do" in missing_table(goes_on, [carol])
    returned = dataclasses.replace(run.exchanges[-1], peer="carol", time_s=run.exchanges[-1].time_s + 1)
    for other in (run, dataclasses.replace(goes_on, exchanges=(*run.exchanges, returned))):
        (carol,) = absences(other)
        assert (carol.advice, "What to do" in missing_table(other, [carol])) == ("", False)


def test_a_band_is_of_several_peers_and_not_of_the_exchanges_of_one() -> None:
    run = in_memory(synthetic_records(peers=3, rounds=900, lost=None))
    run = dataclasses.replace(run, columns={"neighbours": "Neighbours"})
    alone = tuple(record for record in run.exchanges if record.peer == run.peers[0])
    assert differ(curve(run))
    assert not differ(curve(dataclasses.replace(run, exchanges=alone)))


def test_a_peer_lost_again_after_its_return_is_lost_twice(run: Run) -> None:
    alive = dataclasses.replace(run.exchanges[0], peer="carol", time_s=15.0)
    again = EventRecord(peer="alice", time_s=18.0, event="lost", about="carol", why="again")
    rounds = tuple(sorted((*run.exchanges, alive), key=lambda record: record.time_s))
    (carol,) = absences(dataclasses.replace(run, exchanges=rounds, events=(*run.events, again)))
    assert len(carol.lost_s) == 2
    assert carol.why == "again"


def test_each_standstill_is_told_once_with_its_peer_and_its_end() -> None:
    def told(time_s: float, event: EventName, why: str = "", *, by: str = "anna", about: str = "bert") -> EventRecord:
        return EventRecord(peer=by, time_s=time_s, event=event, about=about, why=why)

    run = in_memory(
        {
            "anna": [told(10.0, "stalled", "10 s"), told(40.0, "stalled", "40 s"), told(50.0, "goes_on")],
            "dora": [told(10.1, "stalled", "10 s", by="dora"), told(50.1, "goes_on", by="dora")],
            "bert": [told(90.0, "stalled", "60 s <b>", by="bert", about="")],
            "emma": [told(91.0, "lost", by="emma", about="dora"), told(95.0, "lost", by="emma", about="anna")],
        }
    )
    first, second = standstills(run)
    assert (first.peer, first.since_s, first.why, first.end) == ("bert", 10.0, "40 s", "went on")
    assert (second.peer, second.since_s, second.end) == ("bert", 90.0, "")
    table = standstill_table([first, second])
    assert "did not end" in table
    assert "60 s &lt;b&gt;" in table
    assert standstill_table([]) == ""


def test_missed_rounds_of_a_peer_lie_between_its_loss_and_its_return() -> None:
    """A record names only who was lost since the one before. Dora came late, went at 4.5 and was back in round 8."""
    took_part = {"anna": range(1, 11), "bert": range(1, 11), "dora": [3, 4, 8, 9, 10]}
    files: dict[str, list[Record]] = {
        name: [round_record(name, number, caught_up=(name, number) == ("dora", 3)) for number in numbers]
        for name, numbers in took_part.items()
    }
    files["anna"] += [EventRecord(peer="anna", time_s=4.5, event="lost", about="dora", why=WHY)]
    files["dora"] += [round_record("dora", 7, caught_up=True)]
    (dora,) = absences(in_memory(files))
    assert (dora.missed, dora.back) == (3, True)
    (gone,) = absences(in_memory({name: [told for told in files[name] if told.time_s < 7] for name in files}))
    assert (gone.missed, gone.back) == (2, False)


def test_a_lost_peer_is_labelled_by_its_name_and_several_by_their_number() -> None:
    """A peer may be called 3: its label must not read as if three were lost."""

    def labels(*when: float) -> list[str]:
        found = Absence(peer="3", address="", lost_s=when, missed=0, back=False, why="", advice="")
        return [mark["text"] for mark in absence_marks(time_axis((), 10.0), [found])[1]]

    assert labels(5.0) == ["peer 3 lost"]
    assert labels(5.0, 5.5, 9.0) == ["2 peers lost", "peer 3 lost"]


def test_a_peer_whose_records_are_elsewhere_is_back_when_others_saw_it_join() -> None:
    events = [("lost", 2.5), ("joined", 5.5)]
    told = [EventRecord(peer="anna", time_s=time, event=event, about="far") for event, time in events]  # type: ignore[arg-type]
    (far,) = absences(in_memory({"anna": [*(round_record("anna", number) for number in range(1, 11)), *told]}))
    assert (far.missed, far.back) == (3, True)


def round_record(peer: str, number: int, *, caught_up: bool = False) -> ExchangeRecord:
    """Of a round a second."""
    nothing = {"compute_s": 0.0, "wait_s": 0.0, "transfer_s": 0.0, "bytes_sent": 0, "bytes_received": 0, "members": 2}
    made: dict[str, Any] = {"step": number, "loss": 0.1, "steps_per_s": 1.0} | nothing
    return ExchangeRecord(
        peer=peer, version=number, time_s=float(number), caught_up=caught_up, details={"round": number}, **made
    )


def test_peers_that_do_not_keep_in_step_still_give_a_curve_that_runs_forward() -> None:
    run = in_memory(synthetic_records(peers=6, rounds=200, lost=None))
    slower = {name: 1 + index for index, name in enumerate(run.peers)}
    rounds = [dataclasses.replace(record, time_s=record.time_s * slower[record.peer]) for record in run.exchanges]
    points = curve(dataclasses.replace(run, exchanges=tuple(sorted(rounds, key=lambda record: record.time_s))))
    assert [point.time_s for point in points] == sorted(point.time_s for point in points)
    assert 100 < len(points) <= 301
    assert points[-1].bytes_sent == sum(record.bytes_sent for record in rounds)


def test_the_parts_of_a_round_fill_it_and_never_reach_into_the_round_before(run: Run) -> None:
    overlapping = [dataclasses.replace(record, transfer_s=3.0) for record in run.exchanges]
    for rounds, most in ((run.exchanges, None), (overlapping, None), (run.exchanges, 20), (overlapping, 20)):
        ends: dict[str, float] = {}
        for slot in slots(rounds, most=most):
            for _, start, length, _ in slot.phases():
                assert start >= ends.get(slot.peer, 0.0) - 1e-9
                ends[slot.peer] = start + length
            assert ends[slot.peer] <= slot.end_s + 1e-9


def test_putting_rounds_together_loses_no_measured_second(run: Run) -> None:
    together = slots(run.exchanges, most=40)
    assert len(together) <= 40
    for part, field in enumerate(("compute_s", "wait_s", "transfer_s")):
        measured = sum(getattr(record, field) for record in run.exchanges)
        assert sum(slot.spent_s[part] for slot in together) == pytest.approx(measured)
