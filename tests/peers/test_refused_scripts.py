"""A script that is refused before anything starts leaves no folder behind."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from live import run_here
from loops import HERE, network, nothing_runs_on  # noqa: F401
from torch import nn

import samovar
from samovar.peers.launch.run_folder import make_folder
from samovar.peers.launch.spawned import Spawned
from samovar.peers.launch.spec import founding_orders, log_path
from samovar.peers.launch.unbegun import remove_unbegun
from samovar.peers.run_settings.settings import Settings


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which runs get names that count up."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.mark.parametrize("given", [{"key": "none.key"}, {"listen": "tcp://192.0.2.1:9"}, {"authorized": "none"}])
def test_a_run_that_cannot_be_founded_leaves_no_folder(runs: Path, given: dict[str, Any]) -> None:
    with pytest.raises((ValueError, OSError)):
        samovar.join(**{"listen": HERE, **given})
    assert [*runs.iterdir()] == []


@pytest.mark.parametrize("joins", [False, True])
def test_a_model_that_cannot_be_averaged_leaves_no_folder(runs: Path, joins: bool) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters())

    def refused(**way: Any) -> None:
        run = samovar.join(**way, listen=HERE)
        assert run.folder.exists()
        with pytest.raises(ValueError, match="meta device"):
            run.wrap(optimizer, nn.Linear(2, 2, device="meta"))

    if not joins:
        refused()
    else:
        with run_here(runs.parent / "0") as way:
            refused(**way)
    assert [*runs.iterdir()] == []


def test_a_model_that_the_run_refuses_leaves_no_folder(runs: Path) -> None:
    model = nn.Linear(2, 2)
    with run_here(runs.parent / "0") as way:
        run = samovar.join(**way, listen=HERE)
        with pytest.raises(samovar.JoinRefused):
            run.wrap(torch.optim.SGD(model.parameters()), model)
    assert [*runs.iterdir()] == []


def test_a_run_whose_settings_only_a_task_can_have_leaves_no_folder(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> None:
        if settings.plain()["period"] == "7":
            raise samovar.SettingsError("only a task can train so")

    with run_here(runs.parent / "0", period=7) as way:
        monkeypatch.setattr(importlib.import_module("samovar.peers.script.join"), "_refuse_tasks_own", refuse)
        with pytest.raises(samovar.SettingsError, match="only a task"):
            samovar.join(**way, listen=HERE)
    assert [*runs.iterdir()] == []


def test_a_script_that_fails_after_its_first_round_keeps_its_folder(runs: Path) -> None:
    model, run = network(), samovar.join(listen=HERE, period=1, report=False)
    optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
    optimizer.step()
    run.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert (run.folder / "result.json").exists()


@pytest.mark.parametrize(
    ("log", "ends"),
    [
        ("samovar: mine.py, line 2: period is 5", "exited with 1: samovar: mine.py, line 2: period is 5"),
        ("of mine\nsamovar: mine.py, line 2: period is 5", "period is 5; see {}"),
        ("Traceback\nValueError: mine", "exited with 1: ValueError: mine; see {}"),
    ],
)
def test_a_refusal_that_is_all_that_a_scripts_log_says_does_not_name_the_log(
    tmp_path: Path, log: str, ends: str
) -> None:
    """So that nothing of the run is needed any more."""
    orders = founding_orders(Path("mine.py"), Settings(), tmp_path)[0][0]
    log_path(tmp_path, "0").write_text(f"{log}\n")
    assert Spawned(orders, exit_code=1).death().endswith(ends.format(log_path(tmp_path, "0")))


@pytest.mark.parametrize("named", [False, True])
def test_a_folder_is_removed_only_if_its_name_counts_up(runs: Path, named: bool) -> None:
    settings = Settings(run="mine" if named else None)
    folder = make_folder(settings.run, Path("mine.py"), "samovar train mine.py")
    (folder / "join.txt").write_text("samovar join ...\n")
    assert remove_unbegun(folder, settings) is not named
    assert folder.exists() is named
