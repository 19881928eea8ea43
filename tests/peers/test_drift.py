"""Corrected drift: local steps go where all peers' data want it, and nothing more is sent for that."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from test_pace import COMMON, SLOW, bits, play, squares
from test_simulated_runs import TASKS
from tiers import soaked
from torch import nn

from samovar.aggregation.scaffold import ControlVariate
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.task.model_copy import ModelCopy
from samovar.peers.task.task import Task, load_task
from samovar.protocols.work import AfterStep, OnGradient
from samovar.sims.scenarios.scenario import Fault, Kind

FAR = {"pace": "own", "period": "16", "steps": 240}
"""Peers whose local steps take them most of the way to their own optima."""


def fast() -> Task:
    return dataclasses.replace(squares(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05))


def end(*, faults: tuple[Fault, ...] = (), late_s: float = 0.0, **settings: object) -> float:
    """How far from the common optimum all peers end, of `COMMON` as the origin."""
    steps_s = (*SLOW, 0.02) if late_s else SLOW
    world, _ = play(fast(), steps_s, faults, late_s, **{**FAR, **settings})
    (last,) = {bits(life): life for life in world.lives if life.result is not None}.values()
    return abs(float(last.peer.conversation.state.vector) - COMMON)


# The formulas


def test_corrected_drift_is_scaffold_for_any_numbers_of_local_steps() -> None:
    """Against the paper's algorithm, which sends c: equal steps here, as the paper has them."""
    curves, optima = torch.tensor([0.5, 1.0, 2.0]).double(), torch.tensor([-3.0, 0.0, 4.0]).double()
    rate, steps = 0.1, 7
    x, c, each = torch.zeros(1).double(), torch.zeros(1).double(), torch.zeros(3).double()
    ours, variates = x.clone(), [ControlVariate(None) for _ in curves]
    for _ in range(5):
        ends, after = [], []
        for i in range(3):
            y, gradients = x.clone(), []
            for _ in range(steps):
                gradients.append(curves[i] * (y - optima[i]))
                y = y - rate * (gradients[-1] - each[i] + c)
            ends.append(y)
            after.append(each[i] - c + (x - y) / (steps * rate))
            assert torch.allclose(after[-1], torch.stack(gradients).mean(0)), "option II"
        x, each = torch.stack(ends).mean(0), torch.cat(after)
        c = each.mean().reshape(1)

        brought = []
        for i, variate in enumerate(variates):
            y = ours.clone()
            for _ in range(steps):
                y -= rate * curves[i] * (y - optima[i])
                if variate.added is not None:
                    y += variate.added
            brought.append(variate.without(y, steps))
        ours = torch.stack(brought).mean(0)
        for variate, vector in zip(variates, brought, strict=True):
            variate.begin(ours, vector, steps)
        assert torch.allclose(ours, x, atol=1e-12)


def test_buffers_are_left_alone() -> None:
    variate = ControlVariate(1)
    variate.begin(torch.tensor([3.0, 9.0]), torch.tensor([1.0, 5.0]), 4)
    assert variate.added is not None
    assert variate.added.tolist() == [0.5]
    assert variate.without(torch.tensor([1.5, 7.0]), 1).tolist() == [1.0, 7.0]


def test_a_control_variate_after_a_missed_round_corrects_nothing() -> None:
    variate = ControlVariate(None)
    variate.begin(torch.tensor([3.0]), torch.tensor([1.0]), 4)
    assert variate.added is not None
    variate.begin(None, torch.tensor([1.0]), 4)
    assert variate.added is None
    assert variate.without(torch.tensor([1.5]), 4).item() == 1.5


def test_a_gradient_is_corrected_before_the_optimizers_step_sees_it() -> None:
    """g + shift + pull (x - center): the three terms of FedProx, FedDyn and SCAFFOLD as printed."""
    model = nn.Linear(2, 1)
    copy = ModelCopy(model, torch.optim.SGD(model.parameters(), lr=0.1), "kept")
    shift, center = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.5, 0.5])
    copy.correct(OnGradient(shift, 2.0, center))
    before = copy.vector
    model.weight.grad = torch.tensor([[10.0, 20.0]])
    copy.before_step()
    assert model.bias.grad is not None, "a parameter without a gradient has one of 0"
    got = torch.cat([model.weight.grad.ravel(), model.bias.grad])
    assert torch.allclose(got, torch.tensor([10.0, 20.0, 0.0]) + shift + 2.0 * (before - center))
    copy.after_step()
    assert torch.equal(copy.vector, before)


def test_a_correction_is_added_after_each_step() -> None:
    model = nn.Linear(2, 1)
    copy = ModelCopy(model, torch.optim.SGD(model.parameters(), lr=0.1), "kept")
    before, change = copy.vector, torch.tensor([0.5, 1.0, 1.5])
    for _ in range(2):
        copy.correct(AfterStep(change))
        copy.after_step()
    assert torch.allclose(copy.vector - before, 2 * change)
    copy.correct(None)
    copy.after_step()
    assert torch.allclose(copy.vector - before, 2 * change)


# Runs


def test_training_ends_at_the_common_optimum_however_far_local_steps_go() -> None:
    assert end(drift="corrected") < 1e-3


def test_training_without_correction_ends_elsewhere() -> None:
    """The negative control."""
    assert end() > 0.1


def test_training_with_equal_steps_ends_at_the_common_optimum_too() -> None:
    assert end(pace="equal", drift="corrected") < 1e-3
    assert end(pace="equal") > 0.1


@pytest.mark.parametrize("kind", [Kind.RESTART, soaked(Kind.PAUSE)])
def test_an_absent_peer_leaves_no_bias_behind(kind: Kind) -> None:
    fault = Fault(kind=kind, who=(1,), at_s=2.0, for_s=0.5)
    assert end(faults=(fault,), drift="corrected", patience_s=2.0, steps=480) < 1e-3


def test_corrected_drift_sends_no_more_bytes() -> None:
    def sent(drift: str) -> int:
        _, records = play(load_task(TASKS / "union.py"), steps=64, period="8", drift=drift)
        return sum(record.bytes_sent for rounds in records.values() for record in rounds)

    assert sent("corrected") == pytest.approx(sent("left"), rel=0.01), "but for heartbeats"


def test_the_adaptive_period_goes_with_corrected_drift() -> None:
    assert end(period="adaptive", period_block_s=1e5, drift="corrected") < 1e-3


# What a user says

APART = [{"codec": "int8"}, {"outer": "nesterov"}, {"fragments": 2}, {"overlap": True, "period": "4"}]


@pytest.mark.parametrize("other", [*APART, {"average": "gradients"}], ids=lambda other: next(iter(other)))
def test_settings_that_do_not_go_with_corrected_drift_are_refused(other: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(other)) if "average" not in other else "drift"):
        Settings(drift="corrected", **other)
