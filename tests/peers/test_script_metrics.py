"""Metrics that a script reports: they are labelled as those of the model that was measured, the last one too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loops import batch_loss, begin, network, nothing_runs_on, together  # noqa: F401

import samovar
from samovar.peers.records.tally import Tally


def test_metrics_of_a_script_are_labelled_as_those_of_the_model_that_was_measured(tmp_path: Path) -> None:
    """Measured after exchange 2 while the third goes on: once its model as it is, once after a local step more."""

    def tally(period: int, at: int) -> Tally:
        model = network()
        run = begin(tmp_path / str(period), period=period)
        optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for step in range(3 * period):
            optimizer.step()
            if step + 1 == at:
                run.metrics(0.5)
        run.leave()
        return Tally(run.history)

    common, amid = tally(1, 2), tally(2, 5)
    assert (common.metrics_at, common.metrics_of, common.exchanges) == (2, "", 3)
    assert (amid.metrics_at, amid.metrics_of, amid.exchanges) == (2, "0", 3)


def test_the_result_has_the_metrics_of_the_model_with_which_scripts_leave(tmp_path: Path) -> None:
    """The last average comes amid a round, from models that differ."""

    def loop(run: samovar.Run) -> tuple[dict[str, float], float]:
        model = network()
        optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, metrics={"norm": "lower"})

        def norm() -> float:
            return sum(float(one.detach().square().sum()) for one in model.parameters())

        for step in range(6):
            optimizer.zero_grad()
            batch_loss(model, 10 * run.part + step).backward()
            optimizer.step()
        run.metrics({"norm": norm()})
        run.leave(lambda: {"norm": norm()})
        result = samovar.Result.read(run.folder)
        assert (result.metrics_at, result.metrics_of, result.exchanges) == (2, "", 2)
        return dict(result.metrics), norm()

    (first, final), (second, _) = together(tmp_path, [loop, loop], period=4)
    assert first == second == {"norm": final}


def test_metrics_of_the_last_model_that_cannot_be_measured_are_the_script_s_failure(tmp_path: Path) -> None:
    model = network()
    run = begin(tmp_path / "run", period=1)
    run.wrap(torch.optim.SGD(model.parameters()), model).step()
    with pytest.raises(ZeroDivisionError):
        run.leave(lambda: 1 / 0)
    assert samovar.Result.read(run.folder).exchanges == 1
