"""Records, report and trace: what a run leaves behind is read whole, shown truly, and harms no reader."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import random
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from samovar.peers.records import (
    COMMAND_FILE,
    RESULT_FILE,
    EventRecord,
    Lost,
    Missing,
    Record,
    RecordFile,
    Result,
    RoundRecord,
    Run,
    peer_file,
    read_record,
    read_run,
)
from samovar.peers.report.charts import MOST_POINTS, loss_marks, time_axis
from samovar.peers.report.gantt import MOST_SLOTS
from samovar.peers.report.overview import Absence, absences, curve, totals
from samovar.peers.report.timeline import slots
from samovar.peers.report.trace import write_trace
from samovar.peers.report.write import page, write_report
from samovar.peers.units import seconds_text

HOSTILE = "</script><script>alert(1)</script>"
WHY = "no heartbeat for 5 s"


def synthetic_records(
    *, peers: int = 4, rounds: int = 40, lost: int | None = 2, names: tuple[str, ...] = (), seed: int = 1
) -> dict[str, list[Record]]:
    """What peers tell in a run with a growing period, a straggler, and peer number `lost` gone at half time."""
    rng = random.Random(seed)
    who = list(names) or (["alice", "bob", "carol", "dave"] if peers == 4 else [f"p{index}" for index in range(peers)])
    files: dict[str, list[Record]] = {name: [] for name in who}
    speed = {name: rng.uniform(80, 110) * (0.6 if index == 1 else 1.0) for index, name in enumerate(who)}
    now, step, stall = 0.0, 0, 0.0
    gone: str | None = None
    for name in who:
        files[name].append(EventRecord(peer=name, time_s=0.01, event="started"))
    for number in range(1, rounds + 1):
        if lost is not None and number == rounds // 2:
            gone = who[lost]
            for name in who:
                if name != gone:
                    files[name].append(EventRecord(peer=name, time_s=now + 5.2, event="lost", about=gone, why=WHY))
            stall = 5.0
        alive = [name for name in who if name != gone]
        period = min(32, 4 * 2 ** (5 * number // rounds))
        step += period
        compute = {name: period / speed[name] * rng.uniform(0.9, 1.1) for name in alive}
        moving = rng.uniform(0.08, 0.12)
        slowest = max(compute.values())
        now += slowest + stall + moving
        loss = 2.3 * math.exp(-number / (0.3 * rounds)) + 0.05 + rng.uniform(0, 0.03)
        missing: tuple[Missing, ...] = ()
        if gone:
            advice = "start it again: it catches up"
            missing = (Missing(peer=gone, address="10.0.0.3:7001", since_s=now - 5, why=WHY, advice=advice),)
        for name in alive:
            record = RoundRecord(
                peer=name,
                round=number,
                generation=1 if gone is None else 2,
                period=period,
                step=step,
                time_s=now + rng.uniform(0, 0.002),
                loss=loss * rng.uniform(0.95, 1.05),
                compute_s=compute[name],
                wait_s=slowest - compute[name] + stall,
                transfer_s=moving,
                bytes_sent=rng.randrange(90_000, 110_000),
                bytes_received=rng.randrange(90_000, 110_000),
                steps_per_s=speed[name],
                members=len(alive),
                missing=missing,
                accuracy=1 - 0.9 * math.exp(-number / (0.2 * rounds)) if name == who[0] and number % 4 == 0 else None,
            )
            files[name].append(record)
        stall = 0.0
    return files


def synthetic_run(folder: Path, **settings: Any) -> Run:
    """The same as a run folder, written and read."""
    for name, records in synthetic_records(**settings).items():
        with RecordFile(folder, name) as file:
            for record in records:
                file.append(record)
    run = read_run(folder)
    result = Result(
        accuracy=0.973,
        loss=0.0842,
        wall_s=run.rounds[-1].time_s,
        rounds=run.rounds[-1].round,
        peers=tuple(totals(run)),
        lost=tuple(Lost(peer=found.peer, when=found.lost_s[0], why=WHY) for found in absences(run)),
        run="runs/digits-001",
    )
    (folder / RESULT_FILE).write_text(result.to_json())
    (folder / COMMAND_FILE).write_text("samovar train digits --peers 4 --period adaptive --seed 1\n")
    return read_run(folder)


def in_memory(files: dict[str, list[Record]]) -> Run:
    """A run without a folder, where the number of records would make files slow."""
    records = sorted((record for told in files.values() for record in told), key=lambda record: record.time_s)
    return Run(
        folder=Path("in-memory"),
        peers=tuple(files),
        rounds=tuple(record for record in records if isinstance(record, RoundRecord)),
        events=tuple(record for record in records if isinstance(record, EventRecord)),
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return synthetic_run(tmp_path / "digits-001")


# ---- records


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = synthetic_records()
    run = synthetic_run(tmp_path)
    read: list[Record] = [*run.events, *run.rounds]
    for name, records in written.items():
        told = [record for record in records if isinstance(record, EventRecord)]
        made = [record for record in records if isinstance(record, RoundRecord)]
        assert [record for record in read if record.peer == name] == [*told, *made]
        assert [read_record(record.to_json()) for record in records] == records
    assert run.result is not None
    assert run.result.peers == tuple(totals(run))
    assert run.command.startswith("samovar train")


def test_a_torn_last_line_is_skipped(run: Run) -> None:
    file = peer_file(run.folder, "alice")
    whole = file.read_bytes()
    for cut in range(1, 40):
        file.write_bytes(whole[:-cut])
        left = [record for record in read_run(run.folder).rounds if record.peer == "alice"]
        assert len(left) == (40 if cut == 1 else 39)  # without its newline alone the line is whole


def test_a_torn_line_is_cut_off_when_the_peer_writes_again(run: Run) -> None:
    file = peer_file(run.folder, "alice")
    file.write_bytes(file.read_bytes()[:-20])
    with RecordFile(run.folder, "alice") as records:
        records.append(EventRecord(peer="alice", time_s=30.0, event="resumed"))
    again = read_run(run.folder)
    assert again.events[-1].event == "resumed"
    assert sum(record.peer == "alice" for record in again.rounds) == 39


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("garbage", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 5000, "not JSON"),
        ('{"kind": "weather"}', "neither 'round' nor 'event'"),
        ('{"kind": "event", "peer": "a", "event": "lost"}', "time_s is missing"),
        ('{"kind": "event", "peer": "a", "time_s": true, "event": "lost"}', "time_s is True, not a finite number"),
        ('{"kind": "event", "peer": "a", "time_s": 1e999, "event": "lost"}', "time_s is inf, not a finite number"),
        ('{"kind": "event", "peer": "a", "time_s": null, "event": "lost"}', "time_s is None, not a finite number"),
        ('{"kind": "event", "peer": 7, "time_s": 1, "event": "lost"}', "peer is 7, not text"),
        ('{"kind": "event", "peer": "a", "time_s": 1, "event": "eaten"}', "event is 'eaten', not one of started"),
        ("\xff\xfe", "not JSON"),
    ],
)
def test_garbage_names_its_file_and_line_in_one_line(run: Run, line: str, problem: str) -> None:
    file = peer_file(run.folder, "bob")
    first, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes(b"\n".join((first, line.encode("latin-1"), rest)))
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        read_run(run.folder)
    assert str(caught.value).startswith(f"{file}, line 2: ")
    assert "\n" not in str(caught.value)


def test_spoiled_bytes_give_a_record_or_a_value_error_and_never_another_error(tmp_path: Path) -> None:
    rng = random.Random(5)
    synthetic_run(tmp_path, rounds=3)
    file = peer_file(tmp_path, "bob")
    whole = file.read_bytes()
    for _ in range(300):
        spoiled = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        file.write_bytes(bytes(spoiled))
        try:
            page(read_run(tmp_path), "")
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017  # either outcome is right


def test_what_a_later_version_adds_is_passed_over(run: Run) -> None:
    file = peer_file(run.folder, "bob")
    file.write_text(file.read_text().replace('{"kind"', '{"colour":"teal","kind"'))
    assert read_run(run.folder) == run


def test_a_loss_that_is_not_finite_is_null_in_the_file_and_nan_when_read(run: Run) -> None:
    for loss in (math.nan, math.inf, -math.inf):
        line = dataclasses.replace(run.rounds[0], peer="alice", loss=loss).to_json()
        assert json.loads(line)["loss"] is None
        peer_file(run.folder, "alice").write_text(line + "\n")
        again = next(record for record in read_run(run.folder).rounds if record.peer == "alice")
        assert math.isnan(again.loss)


def test_what_only_a_simulation_has_is_left_out_of_a_real_result(run: Run) -> None:
    assert run.result is not None
    real = json.loads(run.result.to_json())
    assert "virtual_s" not in real
    assert "digest" not in real
    assert real["report"] is None
    simulated = dataclasses.replace(run.result, virtual_s=7200.0, digest="c0ffee").to_json()
    assert json.loads(simulated).items() >= {"virtual_s": 7200.0, "digest": "c0ffee"}.items()


def test_no_name_of_a_peer_leads_out_of_the_run_folder(tmp_path: Path) -> None:
    for name in ("../evil", "/etc/passwd", "a/b", "..", HOSTILE, "\x00", "é"):
        assert peer_file(tmp_path, name).resolve().parent == tmp_path.resolve()


def test_a_folder_without_records_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a run folder"):
        read_run(tmp_path)


# ---- what is made of the records


def test_a_loss_that_three_peers_tell_of_is_one_loss(run: Run) -> None:
    (carol,) = absences(run)
    assert (carol.peer, len(carol.lost_s), carol.missed, carol.back) == ("carol", 1, 21, False)
    assert carol.address == "10.0.0.3:7001"
    assert carol.advice == "start it again: it catches up"


def test_a_peer_that_came_back_and_was_lost_again_was_lost_twice(run: Run) -> None:
    alive = dataclasses.replace(run.rounds[0], peer="carol", time_s=15.0)
    again = EventRecord(peer="alice", time_s=18.0, event="lost", about="carol", why="again")
    rounds = tuple(sorted((*run.rounds, alive), key=lambda record: record.time_s))
    (carol,) = absences(dataclasses.replace(run, rounds=rounds, events=(*run.events, again)))
    assert len(carol.lost_s) == 2
    assert carol.why == "again"


def test_rounds_without_a_peer_are_those_between_its_loss_and_its_return() -> None:
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
        return [mark["text"] for mark in loss_marks(time_axis((), 10.0), [found])[1]]

    assert labels(5.0) == ["peer 3 lost"]
    assert labels(5.0, 5.5, 9.0) == ["2 peers lost", "peer 3 lost"]


def test_a_peer_whose_records_are_elsewhere_is_back_when_others_saw_it_join() -> None:
    events = [("lost", 2.5), ("joined", 5.5)]
    told = [EventRecord(peer="anna", time_s=time, event=event, about="far") for event, time in events]  # type: ignore[arg-type]
    (far,) = absences(in_memory({"anna": [*(round_record("anna", number) for number in range(1, 11)), *told]}))
    assert (far.missed, far.back) == (3, True)


def round_record(peer: str, number: int, *, caught_up: bool = False) -> RoundRecord:
    """Of a round a second."""
    nothing = {"compute_s": 0.0, "wait_s": 0.0, "transfer_s": 0.0, "bytes_sent": 0, "bytes_received": 0, "members": 2}
    made: dict[str, Any] = {"generation": 1, "period": 1, "step": number, "loss": 0.1, "steps_per_s": 1.0} | nothing
    return RoundRecord(peer=peer, round=number, time_s=float(number), caught_up=caught_up, **made)


def test_peers_that_do_not_keep_in_step_still_give_a_curve_that_runs_forward() -> None:
    run = in_memory(synthetic_records(peers=6, rounds=200, lost=None))
    slower = {name: 1 + index for index, name in enumerate(run.peers)}
    rounds = [dataclasses.replace(record, time_s=record.time_s * slower[record.peer]) for record in run.rounds]
    points = curve(dataclasses.replace(run, rounds=tuple(sorted(rounds, key=lambda record: record.time_s))))
    assert [point.time_s for point in points] == sorted(point.time_s for point in points)
    assert 100 < len(points) <= 301
    assert points[-1].bytes_sent == sum(record.bytes_sent for record in rounds)


def test_the_parts_of_a_round_fill_it_and_never_reach_into_the_round_before(run: Run) -> None:
    overlapping = [dataclasses.replace(record, transfer_s=3.0) for record in run.rounds]
    for rounds, most in ((run.rounds, None), (overlapping, None), (run.rounds, 20), (overlapping, 20)):
        ends: dict[str, float] = {}
        for slot in slots(rounds, most=most):
            for _, start, length, _ in slot.parts():
                assert start >= ends.get(slot.peer, 0.0) - 1e-9
                ends[slot.peer] = start + length
            assert ends[slot.peer] <= slot.end_s + 1e-9


def test_putting_rounds_together_loses_no_measured_second(run: Run) -> None:
    together = slots(run.rounds, most=40)
    assert len(together) <= 40
    for part, field in enumerate(("compute_s", "wait_s", "transfer_s")):
        measured = sum(getattr(record, field) for record in run.rounds)
        assert sum(slot.spent_s[part] for slot in together) == pytest.approx(measured)


# ---- report


class Page(HTMLParser):
    """What a browser would see: tags, text, scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.seen = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.seen += data

    @property
    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def test_the_report_shows_the_headline_numbers_and_who_was_lost(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    assert write_report(run, target) == target
    seen = Page(target.read_text(encoding="utf-8")).seen
    for text in ("digits-001", "97.30%", "0.08420", "1 lost", "carol", WHY, "start it again", "samovar train digits"):
        assert text in seen
    figures = Page(target.read_text(encoding="utf-8")).figures
    pairs = {f"{quantity}-{over}" for quantity in ("loss", "accuracy") for over in ("time", "bytes")}
    assert set(figures) == pairs | {"period-time", "members-time", "timeline-time"}
    for name, figure in figures.items():
        assert figure["layout"]["shapes"], f"{name} does not mark the loss"


def test_the_report_names_who_was_waited_for_longest(run: Run) -> None:
    assert "waited longest for" not in page(run, "")
    rounds = [dataclasses.replace(record, waited_for="bob" if record.wait_s > 0.1 else "dave") for record in run.rounds]
    assert "They waited longest for bob." in page(dataclasses.replace(run, rounds=tuple(rounds)), "")


def test_averaging_behind_local_steps_is_shown_beside_what_took_time(run: Run, tmp_path: Path) -> None:
    rounds = tuple(dataclasses.replace(record, hidden_s=0.25) for record in run.rounds)
    overlapped = dataclasses.replace(run, rounds=rounds)
    total_s = 0.25 * len(rounds)
    assert sum(slot.hidden_s for slot in slots(rounds, most=40)) == pytest.approx(total_s)
    shown = Page(page(overlapped, ""))
    assert f"Averaging went on for {seconds_text(total_s)} behind local steps." in shown.seen
    assert "Hidden" in shown.seen
    assert "250 ms of averaging behind local steps" in json.dumps(shown.figures["timeline-time"])
    slices = json.loads(write_trace(overlapped, tmp_path / "trace.json").read_text())["traceEvents"]
    assert {one["args"]["hidden seconds"] for one in slices if one.get("cat") == "round"} == {0.25}
    without = Page(page(run, ""))
    assert "behind local steps" not in without.seen
    assert "Hidden" not in without.seen


def test_the_report_makes_no_external_reference(run: Run) -> None:
    text = Page(page(run, ""))
    for tag, attributes in text.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "audio", "video")
        assert not {"src", "href", "srcset", "action", "data", "poster"} & set(attributes)
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest|WebSocket|sendBeacon", page(run, ""))


def test_the_report_s_own_policy_allows_its_two_scripts_and_nothing_else(run: Run) -> None:
    pytest.importorskip("plotly")
    from plotly.offline import get_plotlyjs

    text = Page(page(run, get_plotlyjs()))
    policies = [tag["content"] for name, tag in text.tags if name == "meta" and "http-equiv" in tag]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in text.scripts[1:]]
    expected = " ".join(f"'sha256-{digest}'" for digest in hashes)
    policy = f"default-src 'none'; script-src {expected}; style-src 'unsafe-inline'; img-src data: blob:"
    assert policies == [policy]
    assert len(text.scripts) == 3


def test_no_button_of_a_chart_sends_its_data_away(run: Run) -> None:
    script = Page(page(run, "")).scripts[-1]
    assert "showSendToCloud: false" in script
    assert 'plotlyServerURL: ""' in script


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    link = "<a href='https://evil.example/'>why</a>"
    run = synthetic_run(tmp_path, names=(HOSTILE, "<b>bob</b>", f"{HOSTILE}2", "dave"))
    event = EventRecord(peer="dave", time_s=1.0, event="error", about="<img src=x onerror=alert(1)>", why=HOSTILE)
    lost = EventRecord(peer="dave", time_s=1.0, event="lost", about=link, why=link)
    run = dataclasses.replace(run, events=(event, lost, *run.events), command=HOSTILE)
    text = page(run, "")
    parsed = Page(text)
    assert HOSTILE in parsed.seen
    assert len(parsed.scripts) == 3
    assert not {"a", "img"} & {tag for tag, _ in parsed.tags}
    assert sum(tag == "b" for tag, _ in parsed.tags) == 6  # the headline numbers
    assert "<" not in parsed.scripts[0]  # nor in the data of the charts,
    for shown in strings(parsed.figures):  # where plotly knows these tags, all our own
        assert not re.search(r"<(?!/?b>|br>|/?extra>)", shown)
        assert "<b>bob" not in shown


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from strings(part)
    if isinstance(value, str):
        yield value


def test_without_plotly_a_report_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install 'samovar[report]'")):
        write_report(run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_plotly_accepts_every_figure(run: Run) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in Page(page(run, "")).figures.values():
        graph_objects.Figure(figure)


def test_64_peers_and_1000_rounds_stay_a_file_that_a_browser_opens(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    run = in_memory(synthetic_records(peers=64, rounds=1000, lost=7))
    target = write_report(run, tmp_path / "report.html")
    assert target.stat().st_size < 12_000_000
    figures = Page(target.read_text(encoding="utf-8")).figures
    bars = [len(trace["x"]) for trace in figures["timeline-time"]["data"] if trace["type"] == "bar"]
    assert 1000 < sum(bars) <= 3 * MOST_SLOTS
    assert len(figures["timeline-time"]["layout"]["yaxis"]["tickvals"]) == 64
    for name, figure in figures.items():
        assert sum(len(trace["x"]) for trace in figure["data"]) <= 3 * max(MOST_POINTS, MOST_SLOTS), name


def test_among_many_peers_those_that_were_missing_get_a_row() -> None:
    run = in_memory(synthetic_records(peers=200, rounds=6, lost=150))
    figure = Page(page(run, "")).figures["timeline-time"]
    assert len(figure["layout"]["yaxis"]["ticktext"]) == 64
    assert "p150" in figure["layout"]["yaxis"]["ticktext"]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_run_that_was_killed_early_still_has_a_report(run: Run, kept: int) -> None:
    begun = dataclasses.replace(run, rounds=run.rounds[:kept], result=None, command="")
    diverged = tuple(dataclasses.replace(record, loss=math.nan, accuracy=None) for record in begun.rounds)
    for some in (begun, dataclasses.replace(begun, rounds=diverged, events=())):
        seen = Page(page(some, "")).seen
        assert "not finished" in seen
        assert ("No round was committed." in seen) == (kept == 0)


# ---- trace


@pytest.fixture
def trace(run: Run, tmp_path: Path) -> list[dict[str, Any]]:
    return list(json.loads(write_trace(run, tmp_path / "trace.json").read_text())["traceEvents"])


def test_every_event_of_a_trace_keeps_the_rules_of_the_format(trace: list[dict[str, Any]]) -> None:
    assert {event["ph"] for event in trace} == {"M", "X", "C", "i"}
    for event in trace:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert isinstance(event["dur"], int)
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index")


def test_slices_of_a_track_lie_inside_each_other_or_apart(trace: list[dict[str, Any]]) -> None:
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) == 4
    for slices in tracks.values():
        open_ends: list[int] = []
        for start, end in sorted(slices, key=lambda slice_: (slice_[0], -slice_[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_a_trace_names_its_peers_and_tells_of_rounds_losses_loss_and_period(trace: list[dict[str, Any]]) -> None:
    names = {event["args"]["name"]: event["pid"] for event in trace if event["name"] == "process_name"}
    assert set(names) == {"run", "alice", "bob", "carol", "dave"}
    assert len(set(names.values())) == 5
    lost = [event for event in trace if event["name"] == "lost"]
    assert [event["pid"] for event in lost] == [names["carol"]]
    assert lost[0]["args"]["why"] == WHY
    assert {event["name"] for event in trace if event["ph"] == "C"} == {"loss", "period", "accuracy"}
    rounds = [event for event in trace if event.get("cat") == "round"]
    assert len(rounds) == 40 * 3 + 19
    assert {event["name"] for event in trace if event["ph"] == "X"} >= {"compute", "wait", "transfer", "round 40"}


def test_a_trace_of_a_run_that_diverged_is_still_json(run: Run, tmp_path: Path) -> None:
    rounds = tuple(dataclasses.replace(record, loss=math.nan) for record in run.rounds)
    text = write_trace(dataclasses.replace(run, rounds=rounds), tmp_path / "trace.json").read_text()
    assert "NaN" not in text
