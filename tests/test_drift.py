"""Corrected drift: local steps go where all peers' data want it, and nothing more is sent for that."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from test_pace import COMMON, SLOW, bits, play, squares
from test_simulated_runs import TASKS
from torch import nn

from samovar.aggregation.scaffold import ControlVariate
from samovar.peers.script.model_hook import Wrapped
from samovar.peers.settings.settings import Settings, SettingsError
from samovar.peers.task.task import Task, load_task
from samovar.sims.scenarios.scenario import Fault, Kind

FAR = {"pace": "own", "period": "16", "steps": 480}
"""Peers whose local steps take them most of the way to their own optima."""


def fast() -> Task:
    return dataclasses.replace(squares(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05))


def end(*, faults: tuple[Fault, ...] = (), late_s: float = 0.0, **settings: object) -> float:
    """How far from the common optimum all peers end, of `COMMON` as the origin."""
    steps_s = (*SLOW, 0.02) if late_s else SLOW
    world, _ = play(fast(), steps_s, faults, late_s, **{**FAR, **settings})
    (last,) = {bits(life): life for life in world.lives if life.result is not None}.values()
    return abs(float(last.peer.state.vector) - COMMON)


# The formulas


def test_it_is_scaffold_whatever_the_numbers_of_local_steps() -> None:
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
                variate.step([y])
            brought.append(variate.without(y))
        ours = torch.stack(brought).mean(0)
        for variate, vector in zip(variates, brought, strict=True):
            variate.begin(ours, vector, steps)
        assert torch.allclose(ours, x, atol=1e-12)


def test_buffers_are_left_alone() -> None:
    variate = ControlVariate(1)
    variate.begin(torch.tensor([3.0, 9.0]), torch.tensor([1.0, 5.0]), 4)
    weight = torch.tensor([[1.0]])
    variate.step([weight])
    assert weight.item() == 1.5
    assert variate.without(torch.tensor([1.5, 7.0])).tolist() == [1.0, 7.0]


def test_after_a_round_without_it_a_peer_goes_its_own_way() -> None:
    variate, weight = ControlVariate(None), torch.ones(1)
    variate.begin(torch.tensor([3.0]), torch.tensor([1.0]), 4)
    variate.step([weight])
    variate.begin(None, torch.tensor([1.0]), 4)
    variate.step([weight])
    assert weight.item() == 1.5
    assert variate.without(weight).item() == 1.5


def test_a_scripts_loop_is_corrected_like_a_tasks() -> None:
    model = nn.Linear(2, 1)
    wrapped = Wrapped(torch.optim.SGD(model.parameters(), lr=0.1), model, gradients=False, inner="kept")
    before = wrapped.contribution(1.0, loss=0.0, elapsed_s=0.0).vector
    wrapped.variate = ControlVariate(wrapped.parameters)
    wrapped.variate.begin(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3), 2)
    wrapped.stepped(halfway=False)
    now = torch.cat([model.weight.detach().ravel(), model.bias.detach()])
    assert torch.allclose(now - before, torch.tensor([0.5, 1.0, 1.5]))
    assert torch.allclose(wrapped.contribution(1.0, loss=0.0, elapsed_s=0.0, steps=1).vector, before)


# Runs


def test_training_ends_at_the_common_optimum_however_far_local_steps_go() -> None:
    assert end(drift="corrected") < 1e-3


def test_without_it_training_ends_elsewhere() -> None:
    """The negative control."""
    assert end() > 0.1


def test_with_equal_steps_too() -> None:
    assert end(pace="equal", drift="corrected") < 1e-3
    assert end(pace="equal") > 0.1


@pytest.mark.parametrize("kind", [Kind.RESTART, Kind.PAUSE])
def test_who_was_away_leaves_no_bias_behind(kind: Kind) -> None:
    fault = Fault(kind=kind, who=(1,), at_s=2.0, for_s=0.5)
    assert end(faults=(fault,), drift="corrected", patience_s=2.0) < 1e-3


def test_nothing_more_is_sent() -> None:
    def sent(drift: str) -> int:
        _, records = play(load_task(TASKS / "union.py"), steps=64, period="8", drift=drift)
        return sum(record.bytes_sent for rounds in records.values() for record in rounds)

    assert sent("corrected") == pytest.approx(sent("left"), rel=0.01), "but for heartbeats"


def test_adaptive_goes_with_both() -> None:
    assert end(period="adaptive", period_block_s=1e5, drift="corrected") < 1e-3


def test_all_go_on_with_the_same_bits() -> None:
    left, corrected = (
        play(load_task(TASKS / "union.py"), steps=64, period="16", drift=drift, pace="own")[0]
        for drift in ("left", "corrected")
    )
    assert len({bits(life) for life in corrected.lives}) == 1
    assert bits(left.lives[0]) != bits(corrected.lives[0])


# What a user says

APART = [{"codec": "int8"}, {"outer": "nesterov"}, {"fragments": 2}, {"overlap": True, "period": "4"}]


@pytest.mark.parametrize("other", [*APART, {"average": "gradients"}], ids=lambda other: next(iter(other)))
def test_what_does_not_go_with_it_is_told(other: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(other)) if "average" not in other else "drift"):
        Settings(drift="corrected", **other)
