"""Ctrl-C while a script loads its data: Stopped, as at a local step."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from loops import begin, network, nothing_runs_on  # noqa: F401
from torch.utils.data import DataLoader, TensorDataset

import samovar
from samovar.peers.script import interrupts


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """The handler and the hook as Python has them, whatever has run before."""
    before, hook = signal.signal(signal.SIGINT, signal.default_int_handler), sys.excepthook
    yield
    signal.signal(signal.SIGINT, before)
    sys.excepthook = hook


def test_ctrl_c_while_a_script_waits_for_a_batch_of_its_workers_raises_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "is_script", lambda: True)
    model = network()
    run = begin(tmp_path / "run", period=1)
    run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    rows = iter(DataLoader(TensorDataset(torch.ones(12, 6)), batch_size=4, num_workers=1))
    next(rows)

    def nothing_comes() -> tuple[bool, None]:
        os.kill(os.getpid(), signal.SIGINT)
        return False, None

    monkeypatch.setattr(rows, "_try_get_data", nothing_comes)  # the worker has been ended by the same Ctrl-C
    with pytest.raises(samovar.Stopped):
        next(rows)
    assert samovar.Result.read(run.folder).ended_why == "stopped by its user"


def failing(loads: bool) -> Exception:
    try:
        if loads:
            next(iter(DataLoader([1], batch_sampler=[[7]])))  # type: ignore[call-overload]
        raise IndexError
    except IndexError as error:
        return error


@pytest.mark.parametrize("loads", [True, False])
def test_after_ctrl_c_an_uncaught_error_of_a_data_loader_is_stopped_and_no_other_is(loads: bool) -> None:
    told, error = list[BaseException](), failing(loads)

    def stop() -> None:
        raise samovar.Stopped("stopped", 130)

    hook = interrupts._without_batches(lambda kind, error, trace: told.append(error), stop)  # type: ignore[arg-type]
    if loads:
        with pytest.raises(samovar.Stopped):
            hook(type(error), error, error.__traceback__)
    else:
        hook(type(error), error, error.__traceback__)
    assert told == ([] if loads else [error])
