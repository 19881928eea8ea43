"""The inner optimizer's own state, averaged with the model: what is in it, whole runs, latecomers, scripts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from loops import network, together
from test_outer_runs import FEW, UNION
from torch import Tensor, nn, optim

import samovar
from samovar.peers.checkpoints.checkpoint import CheckpointError
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.task.optimizer_state import InnerState
from samovar.peers.task.task import Task, load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.work import Load
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

Making = Callable[[Iterable[Tensor]], optim.Optimizer]
KNOWN: dict[str, tuple[Making, set[str]]] = {
    "momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), {"momentum_buffer"}),
    "SGD": (lambda p: optim.SGD(p, lr=0.1), set()),
    "Adam": (lambda p: optim.Adam(p), {"step", "exp_avg", "exp_avg_sq"}),
    "fused": (lambda p: optim.Adam(p, fused=True), {"step", "exp_avg", "exp_avg_sq"}),
    "AMSGrad": (lambda p: optim.AdamW(p, amsgrad=True), {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    "RMSprop": (
        lambda p: optim.RMSprop(p, momentum=0.5, centered=True),
        {"step", "square_avg", "momentum_buffer", "grad_avg"},
    ),
    "Adagrad": (lambda p: optim.Adagrad(p, initial_accumulator_value=0.1), {"step", "sum"}),
}


def stepped(making: Making, *, made_before: bool) -> tuple[nn.Module, optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = making(model.parameters())
    if made_before:
        InnerState(optimizer, model).tensors()
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("name", KNOWN)
def test_all_of_an_optimizers_state_is_averaged_and_to_make_it_changes_nothing(name: str) -> None:
    making, kept = KNOWN[name]
    (model, optimizer), (bare, _) = (stepped(making, made_before=made) for made in (True, False))
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), bare.parameters(), strict=True))
    state = InnerState(optimizer, model).tensors()
    there = {key for each in optimizer.state.values() for key, value in each.items() if value is not None}
    assert there == kept
    assert {name.rpartition("/")[2] for name in state} == kept
    assert len(state) == 4 * len(kept)
    held = {id(value) for each in optimizer.state.values() for value in each.values()}
    assert all(id(tensor) in held for tensor in state.values()), "the optimizer's own, not copies"


def test_an_optimizer_of_unknown_state_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="the state of LBFGS cannot be averaged, only that of SGD, Adam"):
        InnerState(optim.LBFGS(model.parameters()), model)


def test_frozen_parameters_have_no_inner_state() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    kept = InnerState(optim.SGD(model.parameters(), momentum=0.9), model)
    assert list(kept.tensors()) == ["optimizer/weight/momentum_buffer"]


def test_the_averaged_tensors_are_fixed_at_the_beginning() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = optim.SGD([*model[0].parameters(), *model[1].parameters()], lr=0.1, momentum=0.9)
    kept = InnerState(optimizer, model)
    names = list(kept.tensors())
    assert names == ["optimizer/1.weight/momentum_buffer", "optimizer/1.bias/momentum_buffer"]
    model[0].requires_grad_(True)
    model[1].weight.requires_grad_(False)
    optimizer.add_param_group({"params": model[2].parameters()})
    optimizer.param_groups[0]["momentum"] = 0.0
    assert list(kept.tensors()) == names


# Whole runs


def task(making: Making) -> Task:
    return dataclasses.replace(load_task(UNION), optimizer=making)


def adam(parameters: Iterable[Tensor]) -> optim.Optimizer:
    return optim.AdamW(parameters, lr=0.01)


def flat(one: Trainer) -> Tensor:
    return one.vector


def world(late: float = 0.0, **settings: object) -> World:
    scenario = Scenario.plain(Settings(**{**FEW, "inner": "averaged", **settings}))
    if late:
        group = dataclasses.replace(scenario.groups[0], peers=scenario.peers + 1, step_s=0.05)
        scenario = dataclasses.replace(scenario, groups=(group,), arrivals=((scenario.peers, late),))
    made = World(task(adam), scenario)
    run_virtual(made.run())
    return made


@pytest.mark.parametrize("outer", ["plain", "momentum:0.5"])
def test_a_run_equals_the_computation_by_hand(outer: str) -> None:
    """Model and moments become their means; the outer step is for the model alone."""
    device = torch.device("cpu")
    ones = [
        Trainer(task(adam), seed=0, data_shard=part, data_shards=3, device=device, inner="averaged")
        for part in range(3)
    ]
    agreed, size = flat(ones[0]), ones[0].copy.parameters
    assert len(agreed) == 3 * size + len(list(ones[0].model.parameters())), "two moments, and the steps of each"
    velocity = torch.zeros(size)
    for _ in range(10):
        for one in ones:
            one.train(5)
        mean = torch.stack([flat(one) for one in ones]).mean(0)
        if outer != "plain":
            velocity = 0.5 * velocity + agreed[:size] - mean[:size]
            mean[:size] = agreed[:size] - velocity
        agreed = mean
        for one in ones:
            one.begin(Load(agreed))
    lives = world(outer=outer, steps=50).lives
    assert torch.allclose(lives[0].peer.conversation.state.vector, agreed, atol=1e-5)
    assert len({flat(life.trainer).numpy().tobytes() for life in lives}) == 1
    steps = [float(state["step"]) for state in lives[0].trainer.optimizer.state.values()]
    assert steps == pytest.approx([50.0] * 4)


def test_averaged_inner_state_gives_another_run_than_kept_state() -> None:
    kept, averaged = (world(inner=inner, steps=50).lives[0].trainer.model[0].weight for inner in ("kept", "averaged"))
    assert not torch.allclose(kept, averaged, atol=1e-4)


def test_a_latecomer_has_the_others_moments() -> None:
    lives = world(late=2.0, steps=100).lives
    assert len(lives[-1].peer.membership.view.members) == 4
    late, founder = lives[-1].trainer.optimizer.state, lives[0].trainer.optimizer.state
    for ours, theirs in zip(late.values(), founder.values(), strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in ("exp_avg", "exp_avg_sq", "step"))
        assert float(ours["step"]) > 90


def test_a_checkpoint_of_another_inner_is_said_to_be_that() -> None:
    kept, averaged = (
        Trainer(task(adam), seed=0, data_shard=0, data_shards=1, device=torch.device("cpu"), inner=inner)
        for inner in ("kept", "averaged")
    )
    with pytest.raises(CheckpointError, match=r"the checkpoint is of another optimizer or --inner than .*union\.py"):
        averaged.restore(kept.snapshot())


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({"codec": "int8"}, "codec does not go with an averaged inner state, whose squares must come whole, got int8"),
        ({"period": "8", "fragments": 2}, "fragments does not go with an averaged inner state"),
        ({"period": "8", "overlap": True}, "inner cannot be averaged with --overlap: a round ends amid"),
        ({"average": "gradients"}, "inner is for averages of models, not of gradients"),
    ],
)
def test_settings_that_do_not_go_with_averaged_inner_state_are_refused(wished: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(inner="averaged", **wished)


# In somebody's own loop


def test_two_scripts_end_with_the_same_state_though_one_loads_its_own(tmp_path: Path) -> None:
    def loop(run: samovar.Run, *, loads: bool) -> list[Tensor]:
        with run:
            model = network()
            optimizer = run.wrap(optim.Adam(model.parameters()), model)
            torch.manual_seed(run.part)
            for step in range(12):
                optimizer.zero_grad()
                model(torch.randn(4, 6)).square().mean().backward()
                optimizer.step()
                if loads and step == 5:
                    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return list(InnerState(optimizer, model).tensors().values())

    one, other = together(
        tmp_path, [lambda run: loop(run, loads=True), lambda run: loop(run, loads=False)], period=4, inner="averaged"
    )
    assert len(one) == len(other) == 12
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(one, other, strict=True))
