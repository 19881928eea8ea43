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
from torch.utils.data import DataLoader, Dataset

import samovar
from samovar.peers.script.interrupts import _without_batches


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """The handler and the hook as Python has them, whatever has run before."""
    before, hook = signal.signal(signal.SIGINT, signal.default_int_handler), sys.excepthook
    yield
    signal.signal(signal.SIGINT, before)
    sys.excepthook = hook


class Rows(Dataset[torch.Tensor]):
    """The row number 4 comes after Ctrl-C in the process that waits for it."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, row: int) -> torch.Tensor:
        if row == 4:
            os.kill(os.getppid(), signal.SIGINT)
        return torch.ones(6)


def test_ctrl_c_while_a_script_waits_for_a_batch_of_its_workers_raises_stopped_at_once(tmp_path: Path) -> None:
    model = network()
    run = begin(tmp_path / "run", period=1)
    run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    rows = iter(DataLoader(Rows(), batch_size=4, num_workers=1, prefetch_factor=1))
    next(rows)
    with pytest.raises(samovar.Stopped):
        list(rows)
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

    hook = _without_batches(lambda kind, error, trace: told.append(error), stop)  # type: ignore[arg-type]
    if loads:
        with pytest.raises(samovar.Stopped):
            hook(type(error), error, error.__traceback__)
    else:
        hook(type(error), error, error.__traceback__)
    assert told == ([] if loads else [error])
