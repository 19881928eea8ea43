"""Models as people write them: masks of -inf, frozen layers, buffers that are assigned, layers that are replaced."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import begin, joined, nothing_runs_on, rounds  # noqa: F401
from torch import Tensor, nn

import samovar
from samovar.peers.checkpoints.checkpoint import CheckpointError
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.averaged import Averaged
from samovar.peers.task.constants import Agreement
from samovar.peers.task.model_copy import Diverged
from samovar.peers.task.optimizer_state import InnerState
from samovar.peers.task.task import Task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.members.errors import JoinRefused
from samovar.protocols.work import AfterStep, Load
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Hung, World


class Model(nn.Module):
    """A frozen layer, one that is trained, and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 4)
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.frozen(x)) @ torch.softmax(self.mask, -1)


class Running(nn.Module):
    """A buffer that is assigned, not written to in place."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.register_buffer("running", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(x)
        if self.training:
            self.running = 0.9 * self.running + 0.1 * out.detach().mean(0)
        return out


def sgd(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.1, momentum=0.5)


def task(model: Callable[[], nn.Module]) -> Task:
    def data(part: int, parts: int) -> list[Tensor]:
        """Batches of other sizes, so that peers count differently."""
        return [torch.randn(5 + part, 4) for _ in range(4)]

    return Task(Path("task.py"), model, data, lambda model, batch: (model(batch) - 1).square().mean(), None, sgd)


def trainer(model: Callable[[], nn.Module], **more: Any) -> Trainer:
    return Trainer(task(model), seed=0, data_shard=0, data_shards=1, device=torch.device("cpu"), **more)


def world(model: Callable[[], nn.Module], late: float = 0.0, **settings: Any) -> World:
    scenario = Scenario.plain(Settings(**{"device": "cpu", "peers": 3, "period": "3", "steps": 30, **settings}))
    if late:
        group = dataclasses.replace(scenario.groups[0], peers=4, step_s=0.05)
        scenario = dataclasses.replace(scenario, groups=(group,), arrivals=((3, late),))
    made = World(task(model), scenario)
    run_virtual(made.run())
    return made


# Constants


@pytest.mark.parametrize("more", [{}, {"inner": "averaged"}, {"drift": "corrected"}, {"period": "auto"}])
def test_constants_are_not_sent_and_no_run_moves_a_bit_of_them(more: dict[str, Any]) -> None:
    lives = world(Model, late=0.3, **more).lives
    vectors = [life.peer.conversation.state.vector for life in lives]
    assert len(vectors) == 4
    assert all(torch.equal(vector, vectors[0]) for vector in vectors)
    assert len(vectors[0]) == 20 * (2 if "inner" in more else 1), "the head, and maybe its momentum"
    first = trainer(Model).model
    for life in lives:
        assert torch.equal(life.trainer.model.frozen.weight, first.frozen.weight)  # type: ignore[union-attr]
        assert torch.equal(life.trainer.model.mask, first.mask)
        assert not torch.equal(life.trainer.model.head.weight, first.head.weight)  # type: ignore[union-attr]


def test_a_checkpoint_holds_the_whole_model_and_gives_it_back() -> None:
    one = trainer(Model)
    one.train(3)
    snapshot = one.snapshot()
    saved = {name[6:]: tensor for name, tensor in snapshot.tensors.items() if name.startswith("model/")}
    assert saved.keys() == one.model.state_dict().keys()

    def shifted() -> nn.Module:
        (model := Model()).frozen.weight.data.add_(1.0)
        return model

    other = trainer(shifted)
    assert other.copy.agreement() != one.copy.agreement()
    other.restore(snapshot)
    assert torch.equal(other.model.frozen.weight, one.model.frozen.weight)  # type: ignore[union-attr]
    assert other.copy.agreement() == one.copy.agreement()
    assert torch.equal(other.update().vector, one.update().vector)


def test_a_checkpoint_with_another_frozen_layer_is_refused_by_name() -> None:
    def wider() -> nn.Module:
        model = Model()
        model.frozen = nn.Linear(5, 4).requires_grad_(False)
        return model

    with pytest.raises(CheckpointError, match=r"another model than task\.py: tensor 'frozen\.weight' differs$"):
        trainer(Model).restore(trainer(wider).snapshot())


def test_frozen_layers_of_other_values_are_refused_when_a_peer_joins() -> None:
    count = itertools.count()

    def model() -> nn.Module:
        made = Model()
        made.frozen.bias.data.fill_(next(count))
        return made

    made = World(task(model), Scenario.plain(Settings(device="cpu", peers=2)))
    with pytest.raises(Hung, match=r"^0\.0 still run"):  # it waits for another peer
        run_virtual(made.run(within_s=5.0))
    refused = made.lives[1].error
    assert isinstance(refused, JoinRefused)
    said = str(refused)
    assert "frozen weights or integer buffers differ, by hash " in said
    assert "\n" not in said


@pytest.mark.parametrize("average", ["model", "gradients"])
def test_a_scripts_frozen_layers_of_other_values_are_refused(tmp_path: Path, average: str) -> None:
    def wrapped(run: samovar.Run, fill: float) -> None:
        with run:
            model = Model()
            for parameter in model.frozen.parameters():
                parameter.data.fill_(fill)
            run.wrap(sgd(model.parameters()), model)

    founder = begin(tmp_path / "0", peers=2, average=average)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(wrapped, founder, 1.0)
        with pytest.raises(JoinRefused, match=r"^frozen weights .* differ, .* \(peer other\), .* \(peer 0\): load"):
            wrapped(joined(tmp_path / "other", founder), 2.0)
        wrapped(joined(tmp_path / "same", founder), 1.0)
        first.result()


def test_all_of_the_constants_counts_where_they_are_compared() -> None:
    def digest(tensors: dict[str, Tensor]) -> str:
        return Agreement.on(layout, tensors).digest

    layout = Averaged(nn.Linear(2, 2)).layout
    assert Agreement.on(layout).digest == Agreement.on(layout, {}).digest == layout.digest
    large = torch.arange(5000.0)
    swapped = large.clone()
    swapped[[17, 4217]] = large[[4217, 17]]
    kinds = [{"a": large}, {"b": large}, {"a": swapped}, {"a": large.view(50, 100)}, {"a": large.view(torch.int32)}]
    kinds += [{"a": large, "b": large}, {"b": large, "a": large}, {"a": torch.tensor(1.0)}, {"a": torch.empty(0)}]
    assert len({layout.digest, *map(digest, kinds)}) == 1 + len(kinds)
    assert digest({"a": large.view(50, 100).t()}) == digest({"a": large.view(50, 100).t().contiguous()})


def test_frozen_parameters_may_be_of_any_type() -> None:
    class Quantized(Model):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Parameter(torch.randint(0, 255, (4, 4), dtype=torch.uint8), requires_grad=False)
            self.none = nn.Parameter(torch.empty(0), requires_grad=False)

    one = trainer(Quantized)
    one.train(2)
    assert one.update().vector.shape == (20,)
    sparse = nn.Linear(2, 2)
    sparse.frozen = nn.Parameter(torch.eye(2).to_sparse(), requires_grad=False)
    with pytest.raises(ValueError, match=r"tensor 'frozen' is torch\.float32 and torch\.sparse_coo; only dense"):
        Averaged(sparse)


def thawed(model: Any) -> None:
    model.frozen.requires_grad_(True)


def moved(model: Any) -> None:
    """As a teacher that follows by an exponential mean is."""
    model.frozen.weight.data.mul_(0.99)


def unmasked(model: Any) -> None:
    model.mask = torch.zeros(4, 4)


def taken_out(model: Any) -> None:
    model.frozen = nn.Identity()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            thawed,
            r"^parameter 'frozen\.weight' was frozen when the run began.* and is not frozen now: to train it later",
        ),
        (moved, r"^parameter 'frozen\.weight' was frozen when.* has changed: make it a buffer, which is averaged$"),
        (unmasked, r"^tensor 'mask' was not finite when.* has changed: let it begin with finite numbers$"),
        (taken_out, r"^tensor 'frozen\.weight' .* has changed"),
    ],
)
def test_a_constant_that_does_not_stay_one_is_told_in_one_line(change: Callable[[Any], None], said: str) -> None:
    one = trainer(Model)
    one.train(1)
    one.update()
    change(one.model)
    one.train(1)
    with pytest.raises(ValueError, match=said):
        one.update()


def test_with_averaged_gradients_changed_constants_leave_the_vector_unchanged() -> None:
    """A teacher there follows models that are equal."""
    model = Model()
    one = Averaged(model, gradients=True)
    before = one.vector()
    moved(model)
    assert torch.equal(one.vector(), before)


def test_a_drift_correction_reaches_its_own_parameters() -> None:
    one, plain = trainer(Model), trainer(Model)
    for each in (one, plain):
        each.train(1)
    one.copy.correct(AfterStep(torch.arange(20.0)))
    for each in (one, plain):
        each.train(1)
    assert torch.allclose(one.vector - plain.vector, torch.arange(20.0), atol=1e-5)


# What is looked up each time


def test_a_buffer_that_is_assigned_is_averaged() -> None:
    lives = world(Running).lives
    ends = [life.trainer.model.running for life in lives]
    assert all(torch.equal(lives[0].peer.conversation.state.vector[-4:], end) for end in ends)
    assert ends[0].abs().max() > 0.01


@pytest.mark.parametrize("inner", ["kept", "averaged"])
def test_a_layer_that_is_replaced_by_its_like_is_averaged(inner: str) -> None:
    one = trainer(Running, inner=inner)
    one.train(2)
    one.model.head = head = nn.Linear(4, 4)
    one.optimizer.add_param_group({"params": list(head.parameters())})
    one.train(2)
    brought = one.update().vector
    assert torch.equal(brought[:16], head.weight.flatten())
    if inner == "averaged":
        assert torch.equal(brought[24:40], one.optimizer.state[head.weight]["momentum_buffer"].flatten())
    one.begin(Load(torch.full_like(brought, 3.0)))
    assert (head.weight == 3.0).all()


def replaced(model: nn.Module) -> None:
    model.head = nn.Linear(4, 7)


def added(model: nn.Module) -> None:
    model.register_buffer("late", torch.zeros(2))


@pytest.mark.parametrize(
    ("change", "said"), [(replaced, r"'head\.weight' has shape \(7, 4\)"), (added, "'late' is not")]
)
def test_another_layout_is_refused_by_name(change: Callable[[nn.Module], None], said: str) -> None:
    one, bystander = trainer(Running), trainer(Running)
    change(one.model)
    for work in (lambda: one.vector, lambda: one.copy.load(bystander.vector)):
        with pytest.raises(ValueError, match=f"the model is another than when the run began: tensor {said}"):
            work()


def test_an_optimizer_state_that_went_with_its_layer_is_told() -> None:
    model = nn.Linear(2, 2)
    kept = InnerState(optimizer := sgd(model.parameters()), model)
    optimizer.param_groups.clear()
    with pytest.raises(ValueError, match="the optimizer has no parameter 'weight' any more"):
        kept.tensors()


def test_a_cache_that_grows_is_each_peers_own() -> None:
    class Cached(Model):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("angles", torch.zeros(2), persistent=False)
            self.register_buffer("later", None, persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            self.angles, self.later = torch.arange(float(len(x))), torch.ones(3)
            return super().forward(x)

    lives = world(Cached).lives
    assert len(lives[0].peer.conversation.state.vector) == 20
    one = trainer(Cached)
    one.restore(lives[0].trainer.snapshot())
    assert one.steps == 30


# What cannot be averaged


def lazy() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(2))


def lazy_and_frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.LazyBatchNorm1d(affine=False))


def meta() -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Linear(4, 4, device="meta"))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            lazy,
            r"tensor '1\.weight' has no shape yet: a lazy layer gets it from its first batch, so call the model once",
        ),
        (lazy_and_frozen, r"tensor '2\.running_mean' has no shape yet"),
        (meta, r"tensor '1\.weight' is on the meta device and has no values"),
    ],
)
def test_tensors_without_values_are_named_in_one_line(
    tmp_path: Path, model: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        trainer(model)
    for average in ("model", "gradients"):
        run, made = begin(tmp_path / average, average=average), model()
        with pytest.raises(ValueError, match=said):
            run.wrap(torch.optim.SGD(made.parameters(), lr=0.1), made)


def test_divergence_names_the_first_tensor() -> None:
    one = trainer(Running)
    one.train(1)
    one.model.running.fill_(float("nan"))
    with pytest.raises(Diverged, match=r"not finite any more \(learning rate 0\.1\), first those of 'running'; lower"):
        one.update()


def test_a_script_trains_with_a_mask_and_frozen_layers(tmp_path: Path) -> None:
    run, model = begin(tmp_path / "run", period=2), Model()
    with run:
        optimizer = run.wrap(sgd(model.parameters()), model)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
    assert rounds(tmp_path / "run") == [1, 2, 3]
