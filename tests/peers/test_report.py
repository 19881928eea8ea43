"""The report: one file that shows a run truly, to a browser without a network, and harms no reader."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from synthetic import HOSTILE, WHY, in_memory, synthetic_records, synthetic_run

from samovar.peers.records.records import EventRecord, ExchangeRecord
from samovar.peers.records.run import Run
from samovar.peers.records.units import bytes_text, seconds_text
from samovar.peers.report.charts import MOST_POINTS
from samovar.peers.report.gantt import MOST_IN_ROW, MOST_SLOTS
from samovar.peers.report.plot import plotted
from samovar.peers.report.timeline import slots
from samovar.peers.report.trace import write_trace
from samovar.peers.report.write import page, write_report


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


def test_the_report_shows_the_headline_numbers_and_the_lost_peers(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    assert write_report(run, target) == target
    seen = Page(target.read_text(encoding="utf-8")).seen
    for text in ("digits-001", "97.30%", "0.08420", "1 lost", "carol", WHY, "samovar train digits"):
        assert text in seen
    assert run.result is not None
    assert f"{seconds_text(run.exchanges[-1].time_s)} of it after its peers had started" in seen
    figures = Page(target.read_text(encoding="utf-8")).figures
    pairs = {f"{quantity}-{over}" for quantity in ("loss", "accuracy") for over in ("time", "bytes")}
    assert set(figures) == pairs | {"period-time", "members-time", "timeline-time"}
    for name, figure in figures.items():
        assert figure["layout"]["shapes"], f"{name} does not mark the loss"


def test_a_curve_of_a_plot_which_has_no_heading_is_named_at_its_axis(run: Run) -> None:
    axes = [axis.title.text for axis in plotted(run).select_yaxes()]
    assert axes == ["training loss", "accuracy", "Averaging period<br>local steps", "Peers in a round"]


def test_small_counts_stand_at_their_axis_as_plain_numbers(run: Run) -> None:
    def ticks(members: int) -> str:
        records = tuple(dataclasses.replace(record, members=members) for record in run.exchanges)
        figures = Page(page(dataclasses.replace(run, exchanges=records), "")).figures
        return str(figures["members-time"]["layout"]["yaxis"]["tickformat"])

    assert (ticks(0), ticks(999), ticks(20_000)) == ("~g", "~g", "~s"), "0.8 is not 800m"


def test_the_report_counts_servers_as_servers_and_gives_them_no_steps() -> None:
    files = synthetic_records()
    files["dora"] = [EventRecord(peer="dora", time_s=0.0, event="started", role="server")]
    text = page(in_memory(files), "")
    assert f"{len(files) - 1} workers, 1 server" in Page(text).seen
    cells = re.search(r"<td[^>]*>dora \(server\)(.*?)</tr>", text, re.DOTALL)
    assert cells is not None
    assert re.findall(r"<td>([^<]+)", cells[1]) == ["-", "-", "0 B", "0 B", "-", "-", "-", "-"]
    (style,) = re.findall(r"\.tile b {(.*?)}", text, re.DOTALL)
    assert "nowrap" not in style, "words go to the next line of a tile, not out of it"


def test_exchanges_of_one_step_are_told_in_the_singular(run: Run) -> None:
    ones = tuple(dataclasses.replace(record, step=record.version) for record in run.exchanges)
    assert "1 step each" in Page(page(dataclasses.replace(run, exchanges=ones), "")).seen


def test_exchanges_of_servers_and_those_without_steps_are_not_counted_as_the_fewest_steps(run: Run) -> None:
    ones = tuple(dataclasses.replace(record, step=record.version) for record in run.exchanges)
    served = tuple(dataclasses.replace(record, peer="server", step=0) for record in run.exchanges)
    seen = Page(page(dataclasses.replace(run, exchanges=(*ones, *served)), "")).seen
    assert "1 step each" in seen
    assert "or none" not in seen
    idle = dataclasses.replace(ones[-1], version=ones[-1].version + 1)
    seen = Page(page(dataclasses.replace(run, exchanges=(*ones, idle)), "")).seen
    assert "1 step each or none" in seen


def whole_words(command: str) -> str:
    return " ".join(f"<i>{word}</i>" for word in command.split(" "))


def test_the_report_tells_how_the_run_was_started_and_each_way_in_which_it_was_resumed(run: Run) -> None:
    again = ("samovar train digits --resume run", "samovar train digits --resume run --steps 9")
    text = page(dataclasses.replace(run, resumed_by=(again[0], again[0], again[1])), "")
    told = [("Run it again, in a new folder", run.command), *(("Resumed by", command) for command in again)]
    rows = [f"<span>{label}</span><code>{whole_words(command)}</code>" for label, command in told]
    assert "".join(rows) in text
    assert "code i { display: inline-block" in text, "no line breaks between the hyphens of a flag"
    assert "Resumed" not in page(run, "")


def test_the_report_has_the_bytes_of_the_model_beside_those_on_the_wire(run: Run) -> None:
    assert "Averaged" not in page(run, ""), "as the records of before"
    made = tuple(dataclasses.replace(record, model_bytes=25_000) for record in run.exchanges)
    counts = {peer: sum(record.peer == peer for record in made) for peer in run.peers}
    shown = page(dataclasses.replace(run, exchanges=made), "")
    assert "<th>Averaged</th>" in shown
    for count in counts.values():
        assert f"<td>{bytes_text(25_000 * count)}</td>" in shown
    serving = tuple(EventRecord(peer=peer, time_s=0.0, event="started", role="server") for peer in run.peers)
    served = dataclasses.replace(run, exchanges=made, events=serving, result=None)
    assert "Averaged" not in page(served, ""), "a server averages nothing"


def test_the_report_names_the_peer_that_was_waited_for_longest(run: Run) -> None:
    assert "waited longest for" not in page(run, "")
    rounds = [
        dataclasses.replace(record, waited_for="bob" if record.wait_s > 0.1 else "dave") for record in run.exchanges
    ]
    waited = seconds_text(sum(record.wait_s for record in rounds if record.wait_s > 0.1 and record.peer != "bob"))
    told = f"They waited longest for peer bob: {waited} in all."
    assert told in page(dataclasses.replace(run, exchanges=tuple(rounds)), "")
    for_own = tuple(dataclasses.replace(record, waited_for=record.peer) for record in run.exchanges)
    assert "waited longest for" not in page(dataclasses.replace(run, exchanges=for_own), ""), "its own push"


def test_evaluation_and_the_wait_for_it_are_kinds_of_time_of_their_own(run: Run, tmp_path: Path) -> None:
    def spent(record: ExchangeRecord) -> ExchangeRecord:
        if record.peer == "alice":
            return dataclasses.replace(record, evaluate_s=0.5, time_s=record.time_s + 0.5)
        waits = {"wait_s": 0.5, "evaluation_wait_s": 0.4} if record.version % 4 == 1 else {}
        return dataclasses.replace(record, **{"wait_s": 0.001, "waited_for": "alice", **waits})

    evaluated = dataclasses.replace(run, exchanges=tuple(map(spent, run.exchanges)))
    alone = [record for record in evaluated.exchanges if record.peer != "alice"]
    waited = seconds_text(sum(record.wait_s for record in alone))
    of_it = seconds_text(sum(record.evaluation_wait_s for record in alone))
    shown = Page(page(evaluated, ""))
    assert re.search(r" transfer and \d+% evaluation\.", shown.seen)
    assert f"They waited longest for peer alice: {waited} in all, {of_it} of it while it evaluated." in shown.seen
    assert "Evaluate" in shown.seen
    bars = {bar["name"]: bar for bar in shown.figures["timeline-time"]["data"] if bar["type"] == "bar"}
    assert set(bars["evaluate"]["y"]) == {0}, "only she did"
    hovers = json.dumps(bars["wait"]["customdata"])
    assert "wait 500 ms, for alice, which evaluates<br>" in hovers
    assert "wait 1.00 ms, for alice<br>" in hovers
    slices = json.loads(write_trace(evaluated, tmp_path / "trace.json").read_text())["traceEvents"]
    assert {one["args"]["measured seconds"] for one in slices if one.get("cat") == "evaluate"} == {0.5}
    without = Page(page(run, ""))
    assert "valuat" not in without.seen
    assert "evaluate" not in {bar["name"] for bar in without.figures["timeline-time"]["data"]}


def test_averaging_behind_local_steps_is_shown_as_hidden_time(run: Run, tmp_path: Path) -> None:
    rounds = tuple(dataclasses.replace(record, hidden_s=0.25) for record in run.exchanges)
    overlapped = dataclasses.replace(run, exchanges=rounds)
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


def test_a_report_without_plotly_names_the_extra_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install 'samovar[report]'")):
        write_report(run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_plotly_accepts_every_figure(run: Run) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    figures = Page(page(run, "")).figures
    assert len(figures) > 5
    for figure in figures.values():
        graph_objects.Figure(figure)


def test_the_report_tells_of_a_peer_with_records_on_another_machine() -> None:
    records, said = synthetic_records(lost=None), "none lost; up to 4 in a round: peers elsewhere keep"
    assert said not in page(in_memory(records), "")
    assert said in page(in_memory({name: records[name] for name in list(records)[:3]}), "")


def test_a_long_run_s_timeline_has_bars_wide_enough_to_be_seen() -> None:
    pytest.importorskip("plotly")
    figures = Page(page(in_memory(synthetic_records(peers=2, rounds=3000, lost=None)), "")).figures
    bars = [trace["y"] for trace in figures["timeline-time"]["data"] if trace["type"] == "bar"]
    assert max(part.count(row) for part in bars for row in (0, 1)) == MOST_IN_ROW


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


def test_missing_peers_get_a_row_among_many_peers() -> None:
    run = in_memory(synthetic_records(peers=200, rounds=6, lost=150))
    figure = Page(page(run, "")).figures["timeline-time"]
    assert len(figure["layout"]["yaxis"]["ticktext"]) == 64
    assert "p150" in figure["layout"]["yaxis"]["ticktext"]


@pytest.mark.parametrize("accuracies", [(0.9,), (1.0, 1.0), (0.1, 0.99), (0.0,)])
def test_the_axis_of_accuracy_holds_all_values_and_ends_at_100_per_cent(run: Run, accuracies: Sequence[float]) -> None:
    rounds = [
        dataclasses.replace(run.exchanges[0], version=at + 1, metrics={"accuracy": each})
        for at, each in enumerate(accuracies)
    ]
    figure = Page(page(dataclasses.replace(run, exchanges=tuple(rounds)), "")).figures["accuracy-time"]
    low, high = figure["layout"]["yaxis"]["range"]
    assert 0 <= low <= min(accuracies) <= max(accuracies) < high <= 1.01


@pytest.mark.parametrize("kept", [0, 1])
def test_a_run_that_was_killed_early_still_has_a_report(run: Run, kept: int) -> None:
    begun = dataclasses.replace(run, exchanges=run.exchanges[:kept], result=None, command="")
    diverged = tuple(dataclasses.replace(record, loss=math.nan, metrics={}) for record in begun.exchanges)
    for some in (begun, dataclasses.replace(begun, exchanges=diverged, events=())):
        seen = Page(page(some, "")).seen
        assert "not finished" in seen
        assert ("No round was committed." in seen) == (kept == 0)
