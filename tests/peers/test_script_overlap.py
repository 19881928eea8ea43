"""Averaging while somebody's own loop goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loops import begin, together, union

from samovar.peers.records.run import read_run

PERIOD = 10


def test_every_step_is_in_one_record_and_averaging_is_hidden_behind_them(tmp_path: Path) -> None:
    together(tmp_path, [union, union], period=PERIOD, overlap=True)
    ran = read_run(tmp_path / "0").exchanges
    assert [record.version for record in ran] == [1, 2, 3, 4, 5]
    told = [round(record.steps_per_s * record.compute_s) for record in ran]
    assert told == [2 * PERIOD, PERIOD, PERIOD, PERIOD, 0], "before the first average and amid it; nothing in the last"
    assert all(record.hidden_s > 0 for record in ran[:-1])


def test_a_script_is_told_of_a_setting_s_former_name_and_may_write_names_with_hyphens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with begin(tmp_path / "run", overlap=True, period=8, mixing=0.5, schedule="halving-doubling"):
        pass
    assert "samovar: mixing is called overlap_share now" in capsys.readouterr().err.splitlines()
    settings = json.loads((tmp_path / "run/settings.json").read_text("utf-8"))
    assert (settings["overlap_share"], settings["schedule"]) == (0.5, "halving_doubling")
