"""Records of any conversation: its own columns, metrics by their names, and the schema that says how to read them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from synthetic import HOSTILE, in_memory, synthetic_records

import samovar
from samovar.peers.cli.final_table import final_table
from samovar.peers.cli.live_table import Board
from samovar.peers.cli.output import Output
from samovar.peers.launch.run_folder import conclude, keep_result
from samovar.peers.records.columns import ROUNDS, heading, unit
from samovar.peers.records.json_lines import line
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record, read_record
from samovar.peers.records.result import Best
from samovar.peers.records.run import RESULT_FILE, peer_file, read_run
from samovar.peers.records.tally import Tally, saved_text
from samovar.peers.report.curves import curve
from samovar.peers.report.write import page

SCHEMA_1 = Path(__file__).parents[1] / "support" / "runs" / "schema_1"
"""A run folder that a samovar without columns wrote: three simulated peers, one of which crashed."""
GOSSIP = {"neighbours": "Neighbours", "distance": "Distance from the mean model (L2)", "seed": ""}
"""The columns of a conversation without rounds."""


def gossip_records() -> dict[str, list[Record]]:
    """Of three peers that make exchanges each in its own time, one of which is lost."""
    files: dict[str, list[Record]] = {}
    for index, peer in enumerate(("anna", "bert", "carl")):
        records: list[Record] = [EventRecord(peer=peer, time_s=0.0, event="started")]
        for number in range(1, 20 + 10 * index):
            record = ExchangeRecord(
                peer=peer,
                version=number,
                step=5 * number,
                time_s=number * (1.0 - 0.3 * index),
                loss=1.0 + index,
                compute_s=0.5,
                wait_s=0.1,
                transfer_s=0.1,
                bytes_sent=1000,
                bytes_received=1000,
                steps_per_s=10.0,
                members=2,
                metrics={"top-5 accuracy": 0.5, "perplexity": 31.25, "loss": 3.5} if number % 5 == 0 else {},
                details={"neighbours": 2, "distance": 0.125, "seed": 7},
            )
            records.append(record)
        records.append(
            EventRecord(peer=peer, time_s=records[-1].time_s, event="checkpoint", why=saved_text(19, "exchange"))
        )
        files[peer] = records
    files["anna"].append(EventRecord(peer="anna", time_s=30.0, event="lost", about="carl", why="no heartbeat"))
    return files


@pytest.fixture
def gossip(tmp_path: Path) -> Path:
    """The folder of a run without rounds, with all that a command leaves there."""
    folder, heard = tmp_path / "gossip", Tally()
    for peer, records in gossip_records().items():
        with RecordFile(folder, peer, GOSSIP) as file:
            for record in records:
                file.append(record)
                heard.update(record)
    keep_result(conclude(folder, heard, wall_s=31.0), heard)
    return folder


def printed(what: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(what)
    return shown.get()


def board_of(files: dict[str, list[Record]], columns: dict[str, str]) -> Board:
    board = Board(steps=0, columns=columns)
    for record in in_order(files):
        board.update(record)
    return board


def in_order(files: dict[str, list[Record]]) -> list[Record]:
    return sorted((record for records in files.values() for record in records), key=lambda record: record.time_s)


# Schemas


def test_a_run_of_schema_1_is_read_as_it_was_meant() -> None:
    run = read_run(SCHEMA_1)
    assert run.columns == ROUNDS
    assert [(one.version, one.details) for one in run.exchanges if one.peer == "1"] == [
        (number, {"round": number, "generation": 4, "period": 4}) for number in range(1, 7)
    ]
    evaluated = {one.version: one.metrics for one in run.exchanges if one.metrics}
    assert list(evaluated) == [2, 4, 6]
    assert evaluated[6] == {"accuracy": 0.6000000238418579}
    assert run.result is not None
    assert (run.result.metrics, run.result.metrics_at) == (evaluated[6], 6)
    assert (run.result.exchanges, run.result.noun) == (6, "round")
    assert [peer.exchanges for peer in run.result.peers] == [6, 6, 0]
    shown = page(run, "")
    for part in ("<span>accuracy</span><b>60.00%</b>", "<span>Rounds</span><b>6</b>", "<th>Rounds without it</th>"):
        assert part in shown


def test_a_run_of_schema_1_that_is_resumed_today_is_read_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(SCHEMA_1, folder)
    before = read_run(folder)
    added = dataclasses.replace(before.exchanges[-1], version=7, time_s=100.0, details={"round": 7})
    with RecordFile(folder, added.peer) as file:
        file.append(added)
    assert read_run(folder).exchanges == (*before.exchanges, added)


def test_a_line_and_a_result_have_the_keys_of_schema_1_still(gossip: Path) -> None:
    """Scripts of users read them."""
    old = [json.loads(text) for text in peer_file(SCHEMA_1, "0").read_text().splitlines()]
    for row in old:
        assert json.loads(read_record(line(row)).to_json()).items() >= row.items()
    result = json.loads((SCHEMA_1 / RESULT_FILE).read_text())
    again = read_run(SCHEMA_1).result
    assert again is not None
    told = json.loads(again.to_json())
    parts = [*zip(result["peers"], told["peers"], strict=True), *zip(result["lost"], told["lost"], strict=True)]
    for before, now in [(result, told), *parts]:
        apart: dict[str, object] = {"peers": [], "lost": []}
        assert now | apart == now | before | apart


def test_each_process_says_its_schema_before_its_records(tmp_path: Path) -> None:
    for _ in range(2):
        with RecordFile(tmp_path, "anna", GOSSIP) as file:
            assert peer_file(tmp_path, "anna").exists()
            file.append(EventRecord(peer="anna", time_s=0.0, event="started"))
    rows = [json.loads(text) for text in peer_file(tmp_path, "anna").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["schema", "event", "schema", "event"]
    assert rows[0] == {"kind": "schema", "schema": 2, "columns": GOSSIP}


def test_a_newer_schema_is_refused_in_one_line_that_says_so(gossip: Path) -> None:
    for file in (peer_file(gossip, "bert"), gossip / RESULT_FILE):
        whole = file.read_text()
        file.write_text(whole.replace('"schema":2', '"schema":3'))
        with pytest.raises(
            ValueError, match="written by a newer samovar, in schema 3; this one reads up to 2"
        ) as caught:
            read_run(gossip)
        assert str(caught.value).startswith(str(file))
        file.write_text(whole)


def test_the_output_of_json_is_result_json_and_the_result(gossip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, scales = {"perplexity": math.inf, "accuracy": 0.5}, {"perplexity": "lower", "accuracy": "higher %"}
    result = conclude(gossip, Tally(), wall_s=31.0, measured=[("anna", metrics)], scales=scales)
    Output(steps=0, columns=GOSSIP, as_json=True).end(result)
    printed_line = capsys.readouterr().out
    assert printed_line == (gossip / RESULT_FILE).read_text()
    assert printed_line == samovar.Result.read(gossip).to_json() + "\n"
    told = json.loads(printed_line)
    assert told["schema"] == 2
    assert list(told["metrics"].items()) == [("perplexity", None), ("accuracy", 0.5)], "the headline first"
    assert told["metric_scales"] == scales
    assert told["report"] == str(gossip / "report.html")


@pytest.mark.parametrize("schema", ["0", "true", '"two"', "1.5", "null"])
def test_a_bad_schema_number_is_refused(gossip: Path, schema: str) -> None:
    file = peer_file(gossip, "bert")
    file.write_text(file.read_text().replace('"schema":2', f'"schema":{schema}'))
    with pytest.raises(ValueError, match=r"line 1: schema is .*, not a number of 1 or more"):
        read_run(gossip)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"details": 7}, "details is 7, not a list of columns"),
        ({"details": [7]}, r"details is \[7\], not a list of columns"),
        ({"details": ["step"]}, r"details is \['step'\], not a list of columns"),
        ({"distance": "far"}, "details is .*, not a finite number"),
        ({"metrics": {"perplexity": "high"}}, "metrics is .*, not a finite number"),
        ({"metrics": [1.0]}, "metrics is .*, not an object"),
    ],
)
def test_a_spoiled_column_or_metric_gives_one_line(changed: dict[str, object], problem: str) -> None:
    row = json.loads(gossip_records()["anna"][1].to_json())
    with pytest.raises(ValueError, match=f"^record: {problem}$"):
        read_record(line(row | changed))


def test_a_column_has_no_name_that_all_records_have() -> None:
    record = gossip_records()["anna"][1]
    for name in ("loss", "step", "metrics", "kind", "accuracy"):
        with pytest.raises(ValueError, match=f"{name!r} is in all records"):
            dataclasses.replace(record, details={name: 1.0})  # type: ignore[call-arg]


# Without rounds


def test_a_run_without_rounds_never_says_round(gossip: Path) -> None:
    run = read_run(gossip)
    assert run.result is not None
    board = board_of(gossip_records(), GOSSIP)
    told = [
        page(run, ""),
        page(dataclasses.replace(run, exchanges=(), result=None), ""),
        (gossip / "trace.json").read_text(),
        (gossip / RESULT_FILE).read_text(),
        peer_file(gossip, "anna").read_text(),
        board.headline(30.0),
        printed(board.render(30.0, 200)),
        printed(final_table(run.result)),
    ]
    for text in told:
        bare = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)  # the figures stay
        assert not re.findall(r"(?i)\brounds?\b", bare)
        assert "xchange" in text


def test_the_report_draws_the_columns_that_have_a_title(gossip: Path) -> None:
    shown = page(read_run(gossip), "")
    for title in ("Neighbours", "Distance from the mean model", "Peers in an exchange"):
        assert f"<h3>{title}</h3>" in shown
    assert 'id="distance-time"' in shown
    assert 'id="seed-time"' not in shown
    assert 'id="period-time"' not in shown
    assert (heading("Distance (L2)"), unit("Distance (L2)"), unit("Neighbours")) == ("Distance", "L2", "")


def test_the_live_table_has_the_columns_that_have_a_title() -> None:
    board = board_of(gossip_records(), GOSSIP)
    head = printed(board.render(30.0, 200)).splitlines()[1].split()
    assert {"neighbours", "distance"} < {*head}
    assert not {"seed", "period"} & {*head}
    for part in ("exchange 39", "loss 1.500", "neighbours 2   distance 0.125   ", "2 peers, 1 lost"):
        assert part in board.headline(30.0)


def test_the_curve_of_a_run_without_rounds_goes_by_time(gossip: Path) -> None:
    points = curve(read_run(gossip))
    assert [point.time_s for point in points] == sorted(point.time_s for point in points)
    assert 20 < len(points) <= 29, "as a peer in the middle has exchanges, so that most peers are in each point"
    assert {point.details["distance"] for point in points} == {0.125}


def test_the_loss_of_a_run_without_rounds_is_the_mean_over_the_peers_that_are_not_lost(gossip: Path) -> None:
    result = read_run(gossip).result
    assert result is not None
    assert (result.loss, result.exchanges) == (1.5, 39)
    assert "loss 1.500   39 exchanges   3 peers" in printed(final_table(result))
    files = gossip_records()
    assert (Tally(in_order(files)).saved, result.noun) == (19, "exchange")
    files["carl"].append(EventRecord(peer="carl", time_s=31.0, event="joined"))
    assert Tally(in_order(files)).loss == 2.0, "a peer that is back counts again"
    assert Tally(in_order({"carl": files["carl"][:-1], "anna": files["anna"][-1:]})).loss == 3.0, "where all are lost"


# Metrics


def test_each_metric_is_shown_by_its_own_name(gossip: Path) -> None:
    run = read_run(gossip)
    assert run.result is not None
    shown = page(run, "")
    for part in (
        "<span>top-5 accuracy</span><b>50.00%</b><span>after exchange 35</span>",
        "<span>perplexity</span><b>31.25</b>",
        "<span>evaluated loss</span><b>3.500</b>",
        "<h3>perplexity over time</h3>",
        "<h3>evaluated loss over bytes</h3>",
    ):
        assert part in shown
    assert "<span>accuracy</span>" not in shown
    last = printed(final_table(run.result))
    assert "top-5 accuracy 50.00%   perplexity 31.25   evaluated loss 3.500 after exchange 35   " in last
    assert json.loads(run.result.to_json())["metrics"] == {"top-5 accuracy": 0.5, "perplexity": 31.25, "loss": 3.5}


def test_while_a_run_goes_on_its_line_has_the_headline_alone() -> None:
    line = board_of(gossip_records(), GOSSIP).headline(30.0)
    assert "   top-5 accuracy 50.00% after exchange 35   " in line
    assert "perplexity" not in line
    assert "evaluated" not in line


def test_the_best_value_stands_beside_the_last_one(gossip: Path) -> None:
    run = read_run(gossip)
    assert run.result is not None
    best = Best(metric="perplexity", value=12.5, at=20, file="best.safetensors")
    scales = {"top-5 accuracy": "higher %", "perplexity": "lower", "loss": ""}
    told = dataclasses.replace(run.result, best=best, metric_scales=scales)
    shown = page(dataclasses.replace(run, result=told), "")
    assert "<b>31.25</b><span>after exchange 35; best 12.50 after exchange 20</span>" in shown
    assert "<b>50.00%</b><span>after exchange 35</span>" in shown
    assert "best perplexity 12.50 after exchange 20   " in printed(final_table(told))
    last = dataclasses.replace(best, value=31.25, at=35)
    shown = page(dataclasses.replace(run, result=dataclasses.replace(told, best=last)), "")
    assert "<b>31.25</b><span>after exchange 35</span>" in shown


def test_a_run_that_was_not_evaluated_says_so_and_names_no_metric() -> None:
    files = synthetic_records()
    bare: dict[str, list[Record]] = {
        peer: [dataclasses.replace(one, metrics={}) if isinstance(one, ExchangeRecord) else one for one in records]
        for peer, records in files.items()
    }
    shown = page(in_memory(bare), "")
    assert "<span>Evaluation</span><b>-</b><span>not measured</span>" in shown
    assert "ccuracy" not in shown


def test_a_metric_s_name_is_in_the_report_as_it_was_written() -> None:
    files = synthetic_records(peers=2, lost=None, rounds=8)
    first = next(one for one in files["p0"] if isinstance(one, ExchangeRecord))
    shown = page(in_memory({"p0": [dataclasses.replace(first, metrics={"mAP": 0.5, "mean error": 2.0})]}), "")
    for part in (
        "<span>mAP</span>",
        "<h3>mAP over time</h3>",
        "<span>mean error</span>",
        "<h3>mean error over time</h3>",
    ):
        assert part in shown


def test_a_metric_s_name_can_do_no_harm_and_takes_no_other_s_place() -> None:
    files = synthetic_records(peers=2, lost=None, rounds=8)
    first = next(one for one in files["p0"] if isinstance(one, ExchangeRecord))
    metrics = {HOSTILE: 1.0, "period": 2.0, "members": 3.0}
    shown = page(in_memory({"p0": [dataclasses.replace(first, metrics=metrics)]}), "")
    assert HOSTILE not in shown
    for name in ("period-time", "period&#x27;-time", "members-time", "members&#x27;-time"):
        assert f'<div id="{name}">' in shown
