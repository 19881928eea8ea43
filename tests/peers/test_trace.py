"""The trace: a run in the format of trace viewers."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from synthetic import WHY

from samovar.peers.records.run import Run
from samovar.peers.report.trace import write_trace


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
    rounds = tuple(dataclasses.replace(record, loss=math.nan) for record in run.exchanges)
    text = write_trace(dataclasses.replace(run, exchanges=rounds), tmp_path / "trace.json").read_text()
    assert "NaN" not in text
