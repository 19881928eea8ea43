"""What `samovar.Result.read` makes of the folder of a run that ended, goes on, was killed or failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from boards import committed

import samovar
from samovar.peers.checkpoints.best import best_path
from samovar.peers.checkpoints.checkpoint import Snapshot, save
from samovar.peers.launch.run_folder import REPORT_FILE, conclude, keep_failure, keep_result
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord
from samovar.peers.records.tally import Tally

ROUNDS = 6


def recorded(folder: Path, first: int, last: int) -> Path:
    """The folder of a run with a record for each of these rounds."""
    with RecordFile(folder, "0") as file:
        for number in range(first, last + 1):
            file.append(committed("0", number, metrics={"accuracy": number / 10}))
    return folder


def ended(folder: Path) -> Path:
    """The folder of a run that has ended after `ROUNDS` rounds, with its result."""
    keep_result(conclude(recorded(folder, 1, ROUNDS), Tally(), wall_s=9.0, report=False), Tally())
    return folder


@pytest.mark.parametrize("failure", ["", "peer 2 was killed"])
def test_a_run_without_a_result_is_told_by_its_records_and_the_result_says_so(tmp_path: Path, failure: str) -> None:
    folder = recorded(tmp_path, 1, ROUNDS)
    if failure:
        keep_failure(folder, failure)
    result = samovar.Result.read(folder)
    assert (result.exchanges, result.metrics, len(result.records)) == (ROUNDS, {"accuracy": 0.6}, ROUNDS)
    assert result.wall_s == ROUNDS
    why = f"this run failed: {failure}" if failure else "this run has no result: it goes on, or was killed"
    assert result.ended_why == f"{why}; made from its records"
    assert result.ended_by is None
    assert why in repr(result)


def test_a_result_that_knows_less_than_the_records_is_not_taken_for_the_last_word(tmp_path: Path) -> None:
    folder = ended(tmp_path)
    assert samovar.Result.read(folder).ended_why == ""
    assert samovar.Result.read(folder).wall_s == 9.0
    with RecordFile(folder, "0") as file:
        file.append(EventRecord(peer="0", time_s=6.5, event="resumed"))
    assert samovar.Result.read(folder).ended_why == "", "no exchange has followed"
    recorded(folder, ROUNDS + 1, ROUNDS + 2)
    result = samovar.Result.read(folder)
    assert (result.exchanges, result.metrics) == (ROUNDS + 2, {"accuracy": 0.8})
    assert result.wall_s == 9.0, "as its former end has told, which is after the last record"
    assert "it goes on, or was killed" in result.ended_why


def test_the_records_of_a_peer_elsewhere_that_were_copied_to_the_folder_leave_its_result(tmp_path: Path) -> None:
    folder = ended(tmp_path)
    with RecordFile(folder, "far") as file:
        file.append(committed("far", ROUNDS))
    assert samovar.Result.read(folder).wall_s == 9.0


def test_the_paths_of_a_result_are_in_the_folder_from_which_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    recorded(Path("run"), 1, ROUNDS)
    best_path(Path("run")).parent.mkdir()
    save(best_path(Path("run")), Snapshot(tensors={}, numbers={"metric": "accuracy", "value": 0.6, "version": 6}))
    keep_result(conclude(Path("run"), Tally(), wall_s=9.0), Tally())
    monkeypatch.chdir(tmp_path)
    result = samovar.Result.read("there/run")
    assert result.report == str(Path("there/run") / REPORT_FILE)
    assert result.best is not None
    assert Path(result.best.file).exists()
    (tmp_path / "there/run" / REPORT_FILE).unlink()
    assert samovar.Result.read("there/run").report is None
