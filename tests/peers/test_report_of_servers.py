"""The report of a run with a parameter server: clocks, waits, staleness, and the bytes of ranges and servers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from live import verb
from synthetic import HOSTILE, in_memory, synthetic_records
from test_report import Page
from test_simulated_runs import DIGITS, TASKS

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.records.run import Run, read_run
from samovar.peers.report.charts import numbers
from samovar.peers.report.server_charts import range_table
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
