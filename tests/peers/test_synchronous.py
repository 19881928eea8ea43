"""Synchronous data parallel: many peers that average gradients train as one with all their batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from live import DIGITS, verb
from loops import begin, joined, together
from tiers import one_in
from torch import Tensor, nn

import samovar
from samovar.peers.conversations import local_sgd as local_sgd_module
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.task import gradients as gradients_module

STEPS, BATCH = 12, 8
Optimizer = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1))


def batch(step: int, part: int, size: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(size, 20, generator=torch.Generator().manual_seed(1000 * step + part))
    return inputs, inputs[:, :3].sum(1, keepdim=True)


def alone(sizes: list[int], optimizer: Optimizer, *, clip: float = 1e9) -> nn.Module:
    """One process with everybody's batches."""
    model = network()
    stepping = optimizer(model.parameters())
    for step in range(STEPS):
        inputs, targets = (torch.cat(tensors) for tensors in zip(*_batches(step, sizes), strict=True))
        stepping.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        stepping.step()
    return model


def _batches(step: int, sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    return [batch(step, part, size) for part, size in enumerate(sizes)]


def loop(
    sizes: list[int], optimizer: Optimizer, *, clip: float = 1e9, micro: int = 1, until: int = STEPS
) -> Callable[[samovar.Run], nn.Module]:
    """A user's loop, as with DistributedDataParallel."""

    def train(run: samovar.Run) -> nn.Module:
        model = network()
        stepping = run.wrap(optimizer(model.parameters()), model)
        for step in range(until):
            inputs, targets = batch(step, run.part, sizes[run.part])
            run.samples(len(inputs))
            stepping.zero_grad()
            *firsts, last = zip(inputs.chunk(micro), targets.chunk(micro), strict=True)
            with run.no_sync():
                for pair in firsts:
                    (nn.functional.mse_loss(model(pair[0]), pair[1]) / micro).backward()
            loss = nn.functional.mse_loss(model(last[0]), last[1]) / micro
            run.loss(loss)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            stepping.step()
        run.leave()
        return model

    return train


def same(one: nn.Module, other: nn.Module, *, within: float) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.allclose(a, b, rtol=within, atol=within) for a, b in pairs)


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(layout: Any) -> Any:
        return samovar_buckets(layout, first_bytes=200, each_bytes=2000)

    samovar_buckets = gradients_module.buckets
    monkeypatch.setattr(gradients_module, "buckets", small)
    monkeypatch.setattr(local_sgd_module, "buckets", small)


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    one_in(3, product([sgd, adam], ["ring", "auto", "halving_doubling"])),
)
def test_synchronous_peers_equal_one_process_with_the_large_batch(
    tmp_path: Path, optimizer: Optimizer, schedule: str
) -> None:
    sizes = [BATCH] * 3
    models = together(tmp_path, [loop(sizes, optimizer)] * 3, average="gradients", schedule=schedule)
    assert all(same(model, models[0], within=0.0) for model in models), "replicas are equal to the bit"
    assert same(models[0], alone(sizes, optimizer), within=1e-5)
    assert not same(models[0], network(), within=1e-2), "it has trained"


def test_each_peer_counts_by_its_samples(tmp_path: Path) -> None:
    sizes = [2, 14]
    models = together(tmp_path, [loop(sizes, sgd)] * 2, average="gradients")
    assert same(models[0], alone(sizes, sgd), within=1e-5)
    assert not same(models[0], alone([8, 8], sgd), within=1e-5)


class Heads(nn.Module):
    """A trunk and three heads, of which a batch uses one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Linear(20, 10)
        self.heads = nn.ModuleList(nn.Linear(10, 1) for _ in range(3))

    def forward(self, inputs: Tensor, head: int) -> Tensor:
        return self.heads[head](self.trunk(inputs).tanh())


def head_of(step: int, part: int) -> int:
    """The second head is used by one peer in every other step; the last one by nobody."""
    return int(part == 1 and step % 2 == 1)


@pytest.mark.parametrize("schedule", ["auto", "ring"])
def test_a_layer_that_no_peer_used_is_left_alone_as_in_one_process(tmp_path: Path, schedule: str) -> None:
    """Momentum and weight decay would move it, had it a gradient of zeros."""

    def train(run: samovar.Run) -> nn.Module:
        model = Heads()
        stepping = run.wrap(sgd(model.parameters()), model)
        for step in range(STEPS):
            inputs, targets = batch(step, run.part, BATCH)
            stepping.zero_grad()
            nn.functional.mse_loss(model(inputs, head_of(step, run.part)), targets).backward()
            assert (model.heads[1].weight.grad is None) is (step % 2 == 0)
            stepping.step()
        run.leave()
        return model

    models = together(tmp_path, [train] * 2, average="gradients", schedule=schedule)
    alone, untouched = Heads(), Heads()
    stepping = sgd(alone.parameters())
    for step in range(STEPS):
        stepping.zero_grad()
        for part in range(2):
            inputs, targets = batch(step, part, BATCH)
            (nn.functional.mse_loss(alone(inputs, head_of(step, part)), targets) / 2).backward()
        stepping.step()
    assert same(models[0], models[1], within=0.0)
    assert same(models[0], alone, within=1e-5)
    assert same(models[0].heads[2], untouched.heads[2], within=0.0)


def test_accumulated_gradients_go_out_once_a_step(tmp_path: Path) -> None:
    sizes = [BATCH] * 2
    models = together(tmp_path, [loop(sizes, sgd, micro=4)] * 2, average="gradients")
    assert same(models[0], alone(sizes, sgd), within=1e-5)
    assert [record.version for record in read_run(tmp_path / "0").exchanges] == list(range(1, STEPS + 1))


def test_gradient_clipping_after_backward_clips_the_mean(tmp_path: Path) -> None:
    sizes = [BATCH] * 2
    models = together(tmp_path, [loop(sizes, sgd, clip=0.05)] * 2, average="gradients")
    assert same(models[0], alone(sizes, sgd, clip=0.05), within=1e-5)
    assert not same(models[0], alone(sizes, sgd), within=1e-3)


def test_a_peer_that_leaves_early_does_not_stop_the_others(tmp_path: Path) -> None:
    sizes = [BATCH] * 3
    loops = [loop(sizes, sgd), loop(sizes, sgd), loop(sizes, sgd, until=STEPS // 2)]
    models = together(tmp_path, loops, average="gradients")
    assert same(models[0], models[1], within=0.0)
    members = [record.members for record in read_run(tmp_path / "0").exchanges]
    assert len(members) == STEPS
    assert (members[0], members[-1]) == (3, 2)


def test_a_loop_that_fails_within_backward_ends_its_part_alone(tmp_path: Path) -> None:
    def failing(run: samovar.Run) -> str:
        model = network()
        run.wrap(sgd(model.parameters()), model)
        model[0].weight.register_hook(lambda gradient: 1 / 0)
        with pytest.raises(ZeroDivisionError), run:
            model(torch.ones(1, 20)).sum().backward()
        return "failed"

    sizes = [BATCH] * 3
    models = together(tmp_path, [loop(sizes, sgd), loop(sizes, sgd), failing], average="gradients")
    assert models[2] == "failed"
    assert same(models[0], models[1], within=0.0)


def test_a_latecomer_is_told_why_it_cannot_join(tmp_path: Path) -> None:
    founder = begin(tmp_path / "0", peers=1, average="gradients")
    model = network()
    founder.wrap(sgd(model.parameters()), model)
    model(torch.ones(1, 20)).sum().backward()
    late, other = joined(tmp_path / "late", founder), network()
    with pytest.raises(ValueError, match="averages gradients and has begun"):
        late.wrap(sgd(other.parameters()), other)
    founder.leave()


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({"period": "16"}, "must be 1 when gradients are averaged, got 16"),
        ({"codec": "int8"}, "cannot carry gradients"),
        ({"outer": "nesterov"}, "outer is for averages of models, not of gradients, got nesterov"),
        ({"fragments": 2}, "fragments is for averages of models"),
        ({"inner": "reset"}, "inner is for averages of models"),
    ],
)
def test_settings_that_do_not_go_with_gradients_are_refused(wished: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(average="gradients", **wished)
    assert Settings(average="gradients").plain()["period"] == "1"


def test_no_sync_is_for_gradients(tmp_path: Path) -> None:
    run = begin(tmp_path, peers=1)
    with pytest.raises(ValueError, match="no_sync is for gradients"), run.no_sync():
        pass
    with pytest.raises(ValueError, match="number of samples"):
        run.samples(0)
    model = network()
    run.wrap(sgd(model.parameters()), model)
    run.leave()


def test_a_task_has_no_part_in_gradients_whichever_way_it_comes(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('average = "gradients"\n')
    for way in ("simulate", "train"):
        ended = verb(way, DIGITS, "--config", tmp_path / "settings.toml", "--run", tmp_path / way)
        assert ended.exit_code == 2
        assert "a task's peers average its model" in ended.output
