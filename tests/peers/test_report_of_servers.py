"""The report of a run with a parameter server: clocks, waits, staleness, and the bytes of ranges and servers."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path

import pytest
from live import verb
from synthetic import HOSTILE, in_memory, synthetic_records
from test_report import Page
from test_simulated_runs import DIGITS, TASKS

from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.records.run import Run, read_run
from samovar.peers.records.units import bytes_text
from samovar.peers.report.charts import numbers
from samovar.peers.report.server_charts import range_table
from samovar.peers.report.talk_map import talk_map
from samovar.peers.report.write import page

WORKERS, STEPS, BOUND = ("0", "1", "2"), 24, 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = tmp_path_factory.mktemp("servers") / "run"
    told = ("--protocol", "parameter-server", "--servers", 2, "--peers", len(WORKERS), "--consistency", f"ssp:{BOUND}")
    ended = verb(
        "simulate", TASKS / "words.py", *told, "--steps", STEPS, "--evaluate-every", 7, "--run", made, "--json"
    )
    assert ended.exit_code == 0, ended.stderr
    return read_run(made)


def test_the_report_of_servers_alone_says_where_the_losses_are_and_calls_only_its_own_bytes_so() -> None:
    files = synthetic_records(peers=1, lost=None)
    (name,) = files
    came = [
        EventRecord(peer=name, time_s=0.0, event="started", role="server"),
        EventRecord(peer=name, time_s=0.5, event="joined", about="t", about_role="server"),
    ]
    seen = Page(page(in_memory({name: [*came, *files[name]]}), "")).seen
    assert "Losses and metrics are in the reports of the workers." in seen
    assert "Learning" not in seen
    assert "Sent by the peers here" in seen
    trains = Page(page(in_memory(files), "")).seen
    assert "Learning" in trains
    assert "Sent by all peers" in trains


def summed(records: list[ExchangeRecord], name: str) -> Counter[str]:
    found = Counter[str]()
    for record in records:
        found.update(record.counts.get(name, {}))
    return found


def of_servers(run: Run) -> list[ExchangeRecord]:
    return [record for record in run.exchanges if record.peer not in WORKERS]


def test_servers_record_every_push_and_where_its_bytes_went(run: Run) -> None:
    records = of_servers(run)
    pushed = summed(records, "pushed")
    ranges = int(sum(one.details["ranges"] for one in records if one.version == records[0].version)) // 2  # two copies
    assert summed(records, "staleness").total() == len(WORKERS) * STEPS * ranges
    came = Counter[str]()
    for record in records:
        came.update(record.received_from)
    assert sum(came[worker] for worker in WORKERS) == pushed.total() > 0
    assert any(name.startswith("words/") for name in pushed)
    assert "0" in pushed


def test_workers_record_the_bytes_that_they_pull_from_each_server(run: Run) -> None:
    took = Counter[str]()
    for record in run.exchanges:
        if record.peer in WORKERS:
            assert {*record.received_from} <= {"3", "4"}
            took.update(record.received_from)
    gave = summed(of_servers(run), "pulled").total()
    assert 0.5 * gave < took.total() <= gave  # the last pull comes after the last record


def test_a_servers_bytes_in_the_table_of_peers_are_those_of_values_and_little_more(tmp_path: Path) -> None:
    """As the report says. The copies that a server passes on are known from the records of those that get them."""
    told = ("--protocol", "parameter-server", "--servers", 2, "--ranges", 8, "--peers", len(WORKERS), "--steps", STEPS)
    assert verb("simulate", DIGITS, *told, "--json", "--run", tmp_path / "run").exit_code == 0
    run = read_run(tmp_path / "run")
    assert run.result is not None
    totals = {peer.peer: peer for peer in run.result.peers if peer.role}
    assert len(totals) == 2
    for name, total in totals.items():
        own = [record for record in run.exchanges if record.peer == name]
        came, passed = Counter[str](), 0
        for record in own:
            came.update(record.received_from)
        for record in of_servers(run):
            passed += record.received_from.get(name, 0)
        copied = came.total() - summed(own, "pushed").total()
        assert copied == sum(came[other] for other in totals if other != name) > 0
        assert 0.8 * total.bytes_received < came.total() <= total.bytes_received
        assert 0.8 * total.bytes_sent < summed(own, "pulled").total() + passed <= total.bytes_sent


@pytest.mark.parametrize("copies", [1, 2])
def test_the_report_of_one_server_draws_those_elsewhere(run: Run, copies: int) -> None:
    """With one copy of each value they give it nothing."""
    own = [record for record in run.exchanges if record.peer == "3"]
    if copies == 1:
        given = [{name: of for name, of in one.received_from.items() if name != "4"} for one in own]
        own = [dataclasses.replace(one, received_from=of) for one, of in zip(own, given, strict=True)]
    events = (
        EventRecord(peer="3", time_s=0.0, event="started", role="server"),
        EventRecord(peer="3", time_s=0.0, event="joined", about="4", about_role="server"),
    )
    alone = dataclasses.replace(run, peers=("3",), exchanges=tuple(own), events=events, result=None, scene=None)
    text = page(alone, "")
    bars = Page(text).figures["server bytes"]
    assert bars["layout"]["yaxis"]["ticktext"] == ["server 3", "server 4, elsewhere"]
    passed = [one["x"] for one in bars["data"] if one["name"] == "copied from it to servers here"]
    assert [x[0] == 0 < x[1] for x in passed] == [True] * (copies - 1)
    assert "peer 4: gave" in text, "in the graph of messages"


def test_a_run_shorter_than_the_time_between_two_records_of_a_server_has_one_of_each(tmp_path: Path) -> None:
    told = ("--protocol", "parameter-server", "--servers", 2, "--copies", 1, "--ranges", 16, "--peers", 2, "--steps", 3)
    ended = verb("simulate", TASKS / "union.py", *told, "--evaluate-every", 50, "--run", tmp_path / "run", "--json")
    assert ended.exit_code == 0, ended.stderr
    records = [record for record in read_run(tmp_path / "run").exchanges if record.counts]
    assert {record.peer for record in records} == {"2", "3"}
    assert summed(records, "staleness").total() == 2 * 3 * 16


def test_a_worker_is_drawn_at_its_push_and_not_after_its_evaluation(tmp_path: Path) -> None:
    """Under bsp no worker is two clocks ahead. An evaluated turn is recorded when the others may have pushed again."""
    told = ("--protocol", "parameter-server", "--servers", 1, "--peers", 3, "--consistency", "bsp", "--steps", STEPS)
    slow = ("--link", "100mbit,20ms", "--step-time", "1ms", "--evaluate-every", 1)
    ended = verb("simulate", DIGITS, *told, *slow, "--run", tmp_path / "run", "--json")
    assert ended.exit_code == 0, ended.stderr
    run = read_run(tmp_path / "run")
    of_workers = [record for record in run.exchanges if record.peer in WORKERS]
    late_s = [record.time_s - record.made_s for record in of_workers if record.made_s is not None]
    assert len(late_s) == len(of_workers)
    assert min(late_s) > -1e-9
    assert max(late_s) > 0.02
    figures = Page(page(run, "")).figures
    lead = [value for line in figures["worker lead-time"]["data"] for value in line["y"]]
    assert 0 == min(lead) < max(lead) == 1


@pytest.mark.parametrize(("clock_s", "most"), [(50.0, 1), (None, 3)])
def test_workers_whose_own_times_begin_apart_are_drawn_by_their_machines_clock(
    clock_s: float | None, most: int
) -> None:
    """Three that step together every 2 ms, under bsp. The times of the last began 5 ms later."""
    plain = synthetic_records(names=("a", "b", "c"), rounds=20, lost=None)
    files = dict[str, list[Record]]()
    for name, later_s in (("a", 0.0), ("b", 0.0001), ("c", 0.005)):
        at_s = None if clock_s is None else clock_s + later_s + 1.0
        files[name] = [EventRecord(peer=name, time_s=1.0, event="started", clock_s=at_s)]
        told = [one for one in plain[name] if isinstance(one, ExchangeRecord)]
        for number, one in enumerate(told, 1):
            made_s = 1.1 + 0.002 * number - later_s
            files[name].append(dataclasses.replace(one, version=number, time_s=made_s, made_s=made_s, counts={}))
    served = dataclasses.replace(told[0], peer="s", version=1, counts={"pushed": {"0": 1}, "pulled": {}})
    figures = Page(page(in_memory({**files, "s": [served]}), "")).figures
    lead = [value for line in figures["worker lead-time"]["data"] for value in line["y"]]
    assert max(lead) == most


def test_the_lives_of_a_worker_that_came_back_are_drawn_one_after_the_other() -> None:
    """It was gone for 4.5 s, which its own clock does not count."""
    told = [one for one in synthetic_records(names=("a",), rounds=4, lost=None)["a"] if isinstance(one, ExchangeRecord)]
    lives = list[Record]()
    for entry_s, clock_s, records in ((0.0, 50.0, told[:2]), (0.5, 55.0, told[2:])):
        lives.append(EventRecord(peer="a", time_s=entry_s, event="joined", clock_s=clock_s))
        lives += [dataclasses.replace(one, time_s=entry_s + 0.1 * one.version, counts={}) for one in records]
    served = dataclasses.replace(told[0], peer="s", version=1, counts={"pushed": {"0": 1}, "pulled": {}})
    (line,) = Page(page(in_memory({"a": lives, "s": [served]}), "")).figures["worker clocks-time"]["data"]
    assert line["x"] == pytest.approx([one.time_s for one in lives if isinstance(one, ExchangeRecord)])


def test_the_report_draws_clocks_waits_staleness_and_bytes(run: Run) -> None:
    shown = Page(page(run, ""))
    figures = shown.figures
    assert "Workers and servers" in shown.seen
    assert "Messages between peers" in shown.seen
    assert "Each peer's own model" not in shown.seen
    clocks = figures["worker clocks-time"]["data"]
    assert [line["y"] for line in clocks] == [[*range(1, STEPS + 1)]] * len(WORKERS)
    lead = [value for line in figures["worker lead-time"]["data"] for value in line["y"]]
    assert 0 == min(lead) < max(lead) <= BOUND + 1
    (bars,) = figures["push staleness"]["data"]
    assert sum(bars["y"]) == pytest.approx(1)
    (heat,) = figures["awaited"]["data"]
    waited = sum(one.wait_s for one in run.exchanges if one.peer in WORKERS)
    assert sum(map(sum, heat["z"])) == pytest.approx(waited)
    assert {trace["name"] for trace in figures["server bytes"]["data"]} == {
        "pushed to it",
        "pulled from it",
        "copied to it",
    }
    assert len(figures["range bytes"]["data"]) == 2
    ids = [attributes.get("id") for _, attributes in shown.tags]
    assert {*figures} <= {*ids}


def test_the_report_of_a_worker_that_joined_is_that_of_a_worker_and_draws_the_servers_that_it_pulled_from(
    run: Run,
) -> None:
    own = tuple(record for record in run.exchanges if record.peer == "1")
    joined = dataclasses.replace(run, peers=("1",), exchanges=own, events=(), result=None, scene=None)
    shown = Page(page(joined, ""))
    assert "Workers and servers" in shown.seen
    assert "Each peer's own model" not in shown.seen
    assert "worker clocks-time" in shown.figures
    assert "worker lead-time" not in shown.figures, "it does not know the others' clocks"
    pulled = Counter[str]()
    for record in own:
        pulled.update(record.received_from)
    assert pulled.keys() == {"3", "4"}
    drawn = talk_map(joined)
    assert all(f"1 to {server}: 0 B, back: {bytes_text(size)}" in drawn for server, size in pulled.items())
    assert f"the whole run: {bytes_text(pulled.total())}" in drawn
    assert "dashed: " not in drawn
    half = own[len(own) // 2].time_s
    later = [dataclasses.replace(one, received_from={"3": 5}) if one.time_s > half else one for one in own]
    assert "dashed: " in talk_map(dataclasses.replace(joined, exchanges=tuple(later))), "a server that is gone by then"


def test_the_report_of_servers_alone_has_no_empty_tiles(run: Run) -> None:
    assert run.result is not None
    servers = tuple(peer for peer in run.result.peers if peer.role)
    result = dataclasses.replace(run.result, peers=servers, metrics={}, loss=math.nan)
    exchanges, events = of_servers(run), [event for event in run.events if event.peer in ("3", "4")]
    own = {"peers": ("3", "4"), "exchanges": tuple(exchanges), "events": tuple(events), "scene": None}
    served = dataclasses.replace(run, result=result, **own)
    assert "Training loss" in Page(page(run, "")).seen
    seen = Page(page(served, "")).seen
    assert "Training loss" not in seen
    assert "Evaluation" not in seen
    assert "Where the time went" in Page(page(run, "")).seen
    assert "Where the time went" not in seen
    assert "timeline-time" not in Page(page(served, "")).figures


def test_the_bytes_of_the_hottest_range_come_first(run: Run) -> None:
    pushed, pulled = (summed(of_servers(run), name) for name in ("pushed", "pulled"))
    hottest = max({*pushed, *pulled}, key=lambda name: pushed[name] + pulled[name])
    first = range_table(run).split("<tbody>")[1].split("</td>")[0]
    assert first.endswith(f"range {hottest}" if hottest.isdecimal() else hottest)


def test_a_report_of_a_run_without_servers_has_no_part_of_them() -> None:
    assert "Workers and servers" not in page(in_memory(synthetic_records()), "")


def test_names_of_ranges_and_of_peers_are_no_tags() -> None:
    counts = {"staleness": {HOSTILE: 1, "1": 2}, "pushed": {HOSTILE: 5}, "pulled": {}}
    records = {
        name: [
            dataclasses.replace(one, waited_for=HOSTILE, counts=counts if name == "d" else {})
            if hasattr(one, "loss")
            else one
            for one in told
        ]
        for name, told in synthetic_records(names=(HOSTILE, "b", "c", "d")).items()
    }
    text = page(in_memory(records), "")
    assert "Workers and servers" in text
    assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("values", "written"), [([0.2, 0.9], "~g"), ([-3.0, 7.5], "~g"), ([10, 2804], "~s"), ([], "~g")]
)
def test_fractions_at_an_axis_are_written_as_digits_and_not_as_thousandths(values: list[float], written: str) -> None:
    assert numbers(values)["tickformat"] == written
