"""Records: what a run leaves behind is read whole, whatever became of its last line, and harms no reader."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from pathlib import Path
from unittest import mock

import pytest
from synthetic import HOSTILE, synthetic_records, synthetic_run

from samovar.peers.launch.spec import checkpoint_path, log_path
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record, read_record
from samovar.peers.records.run import Run, peer_file, read_run
from samovar.peers.report.overview import totals
from samovar.peers.report.write import page


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = synthetic_records()
    run = synthetic_run(tmp_path)
    read: list[Record] = [*run.events, *run.exchanges]
    for name, records in written.items():
        told = [record for record in records if isinstance(record, EventRecord)]
        made = [record for record in records if isinstance(record, ExchangeRecord)]
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
        left = [record for record in read_run(run.folder).exchanges if record.peer == "alice"]
        assert len(left) == (40 if cut == 1 else 39)  # without its newline alone the line is whole


def test_a_file_that_is_closed_twice_writes_the_lines_that_waited(tmp_path: Path) -> None:
    file = RecordFile(tmp_path, "a")
    file.append(EventRecord(peer="a", time_s=1.0, event="started"))
    file.close()
    with mock.patch.object(RecordFile, "_open", side_effect=OSError("the disk is full")):
        assert file.append(EventRecord(peer="a", time_s=2.0, event="stopped")) is not None
        file.close()
    file.close()
    assert [event.event for event in read_run(tmp_path).events] == ["started", "stopped", "records_failed"]


def test_a_torn_line_is_cut_off_when_the_peer_writes_again(run: Run) -> None:
    file = peer_file(run.folder, "alice")
    file.write_bytes(file.read_bytes()[:-20])
    with RecordFile(run.folder, "alice") as records:
        records.append(EventRecord(peer="alice", time_s=30.0, event="resumed"))
    again = read_run(run.folder)
    assert again.events[-1].event == "resumed"
    assert sum(record.peer == "alice" for record in again.exchanges) == 39


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("garbage", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 5000, "not JSON"),
        ('{"kind": "weather"}', "none of 'round', 'exchange' and 'event'"),
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


def test_a_key_of_a_later_version_is_passed_over(run: Run) -> None:
    file = peer_file(run.folder, "bob")
    file.write_text(file.read_text().replace('{"kind"', '{"colour":"teal","kind"'))
    assert read_run(run.folder) == run


def test_a_loss_that_is_not_finite_is_null_in_the_file_and_nan_when_read(run: Run) -> None:
    for loss in (math.nan, math.inf, -math.inf):
        line = dataclasses.replace(run.exchanges[0], peer="alice", loss=loss).to_json()
        assert json.loads(line)["loss"] is None
        peer_file(run.folder, "alice").write_text(line + "\n")
        again = next(record for record in read_run(run.folder).exchanges if record.peer == "alice")
        assert math.isnan(again.loss)


def test_keys_of_a_simulation_are_left_out_of_a_real_result(run: Run) -> None:
    assert run.result is not None
    real = json.loads(run.result.to_json())
    assert "virtual_s" not in real
    assert "digest" not in real
    assert real["report"] is None
    simulated = dataclasses.replace(run.result, virtual_s=7200.0, digest="c0ffee").to_json()
    assert json.loads(simulated).items() >= {"virtual_s": 7200.0, "digest": "c0ffee"}.items()


def test_no_name_of_a_peer_leads_out_of_the_run_folder(tmp_path: Path) -> None:
    for name in ("../evil", "/etc/passwd", "a/b", "a/../../escaped", "..", HOSTILE, "\x00", "é", "é" * 64, "x" * 9999):
        for file in (peer_file(tmp_path, name), log_path(tmp_path, name)):
            assert file.resolve().parent == tmp_path.resolve()
            assert len(file.name.encode()) < 200, "a file's name may have 255 bytes"
        assert checkpoint_path(tmp_path, name).resolve().parent == tmp_path.resolve() / "checkpoint"
    assert len({peer_file(tmp_path, "é" * 63 + end) for end in "ab"}) == 2


def test_a_folder_without_records_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a run folder"):
        read_run(tmp_path)
