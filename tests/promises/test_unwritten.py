"""What cannot be written, be it a record, a result or the whole folder, costs nobody what there is to tell."""

from __future__ import annotations

import dataclasses
import errno
import math
import shutil
from io import FileIO
from pathlib import Path

import pytest
from synthetic import synthetic_records

from samovar.peers.cli.output import Output
from samovar.peers.launch.run_folder import Spent, conclude, keep_result, spent
from samovar.peers.records import record_file
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord, Record
from samovar.peers.records.run import peer_file, read_run
from samovar.peers.records.tally import Tally

WRITTEN = synthetic_records()


class Disk:
    """One with so much room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = math.inf
        disk = self

        class File(FileIO):
            def write(self, data: bytes) -> int:
                fits = int(min(disk.room, len(data)))
                if not fits:
                    raise OSError(errno.ENOSPC, "No space left on device")
                disk.room -= fits
                return super().write(data[:fits])

        monkeypatch.setattr(record_file, "FileIO", File)


@pytest.mark.parametrize("room", [0, 1, 500])
def test_records_that_do_not_fit_are_written_when_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    records, disk = WRITTEN["alice"], Disk(monkeypatch)
    with RecordFile(tmp_path, "alice") as file:
        told = [file.append(record) for record in records[:5]]
        assert told == [None] * 5
        disk.room = room
        told = [file.append(record) for record in records[5:20]]
        (failed,) = [event for event in told if event is not None]
        assert failed.event == "records_failed"
        assert "No space left on device" in failed.why
        assert len(read_run(tmp_path).exchanges) < 20, "it can be read meanwhile"
        disk.room = math.inf
        assert [file.append(record) for record in records[20:]] == [None] * len(records[20:])
    run = read_run(tmp_path)
    assert sorted((*run.exchanges, *run.events), key=by_time) == sorted((*records, failed), key=by_time)


def by_time(record: Record) -> tuple[float, str]:
    return record.time_s, record.to_json()


def test_a_record_file_is_made_as_soon_as_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    with RecordFile(tmp_path / "run", "alice") as file:
        assert file.append(WRITTEN["alice"][0]) is not None
        (tmp_path / "run").unlink()
        assert file.append(WRITTEN["alice"][1]) is None
    assert len(peer_file(tmp_path / "run", "alice").read_text().splitlines()) == 4, (
        "a header, both, and that the first could not be written"
    )


def heard_run(folder: Path) -> Tally:
    heard = Tally()
    for name, records in WRITTEN.items():
        with RecordFile(folder, name) as file:
            for record in records:
                file.append(record)
                heard.update(record)
    return heard


def test_the_result_is_the_same_though_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    heard = heard_run(folder)
    whole = conclude(folder, Tally(), wall_s=1.0)
    assert conclude(folder, heard, wall_s=1.0) == whole
    shutil.rmtree(folder)
    rest = conclude(folder, heard, wall_s=1.0)
    assert dataclasses.replace(rest, peers=()) == dataclasses.replace(whole, peers=())
    for one, other in zip(rest.peers, whole.peers, strict=True):
        told, kept = dataclasses.asdict(one), dataclasses.asdict(other)
        assert told.pop("received_from") == kept.pop("received_from")
        assert told == pytest.approx(kept)


def test_the_time_and_the_bytes_of_a_run_are_those_of_all_its_sessions(tmp_path: Path) -> None:
    def times() -> tuple[float, float]:
        found = spent(tmp_path / "run")
        return found.wall_s, found.recorded_s

    assert spent(tmp_path / "run") == Spent()
    heard = heard_run(tmp_path / "run")
    killed_s = max(record.time_s for records in WRITTEN.values() for record in records)
    assert times() == (killed_s, killed_s)
    assert killed_s > 0
    sent = {name: sum(getattr(one, "bytes_sent", 0) for one in records) for name, records in WRITTEN.items()}
    assert {peer.peer: peer.bytes_sent for peer in spent(tmp_path / "run").peers} == sent
    for concluded_s in (killed_s / 2, killed_s + 5):
        keep_result(conclude(tmp_path / "run", heard, wall_s=concluded_s, report=False), heard)
        assert times() == (max(killed_s, concluded_s), killed_s)


def test_a_result_whose_records_are_gone_is_shown_all_the_same_and_the_loss_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    output = Output(steps=0, columns={}, as_json=True, quiet=False)
    output.heard = heard_run(folder)
    peer_file(folder, "bob").unlink()
    result = conclude(folder, output.heard, wall_s=1.0)
    count = sum(len(records) for records in WRITTEN.values())
    assert f"of {count} records" in output.end(result)
    assert capsys.readouterr().out.strip() == dataclasses.replace(result, report=None).to_json()
    folder.joinpath("result.json").unlink()
    shutil.rmtree(folder)
    folder.write_text("in the way")
    assert output.end(result) == f"{folder}: not all of the result could be written: file exists"
    assert capsys.readouterr().out.strip() == dataclasses.replace(result, report=None).to_json()


def test_a_tally_counts_the_furthest_checkpoint_too() -> None:
    tally = Tally(EventRecord(peer="a", time_s=0.0, event="checkpoint", why=f"round {n}") for n in (3, 41, 7))
    assert tally.saved == 41
    assert Tally().saved is None


def test_an_output_that_went_away_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[object]()

    def gone(*arguments: object, **options: object) -> None:
        said.extend(arguments)
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", gone)
    Output(steps=0, columns={}, as_json=True, quiet=False).say("join from another machine: ...")
    assert said, "nothing was written, so nothing was gone"


def test_a_life_that_was_started_anew_and_killed_before_it_wrote_anything_is_no_record_that_is_missing() -> None:
    again = EventRecord(peer="a", time_s=0.0, event="restarted", why="its process was killed by signal 9")
    joined = EventRecord(peer="a", time_s=1.0, event="joined")
    assert Tally([again, again, joined]).records == 1
