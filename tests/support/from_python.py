"""Runs that a test starts by `samovar.train`, as a notebook or a program does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nursery import execute

import samovar
from samovar.peers.launch import spawn


@pytest.fixture(name="here", autouse=True)
def folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are made in a folder of the test's, by processes from the nursery."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spawn, "_execute", execute)
    return tmp_path


def trained(task: Any, **settings: Any) -> samovar.Result:
    return samovar.train(task, **{"peers": 2, "period": 2, "steps": 8, "quiet": True, "report": False, **settings})
