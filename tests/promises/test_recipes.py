"""Recipes of PyTorch, each in its usual form, in a task file and in a script: `support/recipes`.

A recipe is a task file with one more function, `loop(run, model, part, parts)`: the same in a loop of one's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from live import children
from live import samovar as train
from loops import RECIPES, Bare, begin, first_model, nothing_runs_on, steps_of, together, weights  # noqa: F401
from tiers import one_in, soaked
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from torch.utils.data import TensorDataset
from two_peers import TwoPeers

import samovar
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task, load_task
from samovar.peers.training.schedule import Schedule
from samovar.peers.training.trainer import Trainer
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

USUAL = ("schedule", "accumulation", "bf16", "fp16", "groups", "ema", "lora", "metrics", "unfreezing", "gradual")
USUAL += ("arguments",)
ARGUMENTS = {"arguments": "--width 20 --rate 0.05"}
"""What recipes are given after --."""
CPU = torch.device("cpu")


def task_of(recipe: str) -> Task:
    return load_task(RECIPES / f"{recipe}.py", ARGUMENTS.get(recipe, ""))


def module_of(task: Task) -> ModuleType:
    return sys.modules[task.model.__module__]


def plain(recipe: str) -> Tensor:
    """The weights at the end of the loop, in one process and without Samovar."""
    task = task_of(recipe)
    module_of(task).loop(Bare(), model := first_model(task))
    return weights(model)


class Simulated:
    """A simulated run of a recipe that is over."""

    def __init__(self, recipe: str, **settings: Any) -> None:
        self.records: list[Record] = []
        wished = {"peers": 1, "period": "4", "steps": steps_of(recipe), "device": "cpu", "link": "100mbit,5ms"}
        self.task = task_of(recipe)
        scenario = Scenario.plain(Settings(**{**wished, **settings}))
        world = World(self.task, scenario, self.records.append)
        run_virtual(world.run(within_s=1000), seed=0)
        assert all(life.result is not None and life.result.finished for life in world.lives)
        self.trainers = [life.trainer for life in world.lives]

    @property
    def exchanges(self) -> list[ExchangeRecord]:
        return [record for record in self.records if isinstance(record, ExchangeRecord)]


@pytest.mark.parametrize("recipe", USUAL)
def test_one_peer_of_a_task_trains_as_a_plain_loop(recipe: str) -> None:
    assert torch.equal(weights(Simulated(recipe).trainers[0].model), plain(recipe))


@pytest.mark.parametrize("recipe", USUAL)
def test_one_peer_of_a_script_trains_as_a_plain_loop(recipe: str, tmp_path: Path) -> None:
    task = task_of(recipe)
    module_of(task).loop(begin(tmp_path, peers=1, period="4"), model := first_model(task))
    assert torch.equal(weights(model), plain(recipe))


@pytest.mark.parametrize("recipe", one_in(2, ["schedule", "ema", "gradual", "arguments"]))
def test_peers_of_sgd_that_average_each_step_train_as_one_on_the_union_of_their_batches(recipe: str) -> None:
    run = Simulated(recipe, peers=4, period="1")
    for trainer in run.trainers:
        torch.testing.assert_close(weights(trainer.model), plain(recipe), rtol=0, atol=1e-5)


def averaging_gradients(recipe: str, folder: Path) -> list[nn.Module]:
    """The models of two scripts that average gradients."""
    task = task_of(recipe)

    def loop(run: samovar.Run) -> nn.Module:
        model, more = first_model(task), {"apart": run.no_sync} if recipe == "accumulation" else {}
        module_of(task).loop(run, model, **more)
        return model

    return together(folder, [loop, loop], average="gradients", period="1")


@pytest.mark.parametrize("recipe", ["accumulation", "groups", "lora", "metrics", "unfreezing"])
def test_scripts_that_average_gradients_train_as_one_on_the_union_of_their_batches(recipe: str, tmp_path: Path) -> None:
    for model in averaging_gradients(recipe, tmp_path):
        torch.testing.assert_close(weights(model), plain(recipe), rtol=0, atol=1e-5)


@pytest.mark.parametrize("recipe", ["bf16", "fp16"])
def test_scripts_of_half_precision_that_average_gradients_reach_the_accuracy_of_one_process(
    recipe: str, tmp_path: Path
) -> None:
    """Sums of the parts of a batch are rounded otherwise than that of the whole."""
    task = task_of(recipe)
    inputs, labels = (torch.cat(parts) for parts in zip(*task.data(0, 1), strict=True))
    module_of(task).loop(Bare(), alone := first_model(task))

    def accuracy(model: nn.Module) -> float:
        return float((model(inputs).argmax(1) == labels).float().mean())

    assert accuracy(alone) > 2 * accuracy(first_model(task))
    for model in averaging_gradients(recipe, tmp_path):
        assert abs(accuracy(model) - accuracy(alone)) <= 0.01


@pytest.mark.parametrize("recipe", sorted({*USUAL} - {"ema", "metrics", "unfreezing"}))
def test_a_recipe_that_is_resumed_goes_on_to_the_same_bits(recipe: str) -> None:
    settings = Settings(peers=2, period="2", steps=steps_of(recipe), device="cpu", checkpoint_every_s=0)
    whole = TwoPeers(task_of(recipe), settings)
    halfway = whole.snapshots[max(whole.snapshots) // 2]
    assert len(halfway) == 2
    assert TwoPeers(task_of(recipe), settings, begun=halfway).everything == whole.everything


def test_what_on_round_changes_after_an_exchange_is_in_the_checkpoint_of_that_exchange() -> None:
    """It is not called again after a restart. This one unfreezes the body after local step 12."""
    settings = Settings(peers=2, period="3", steps=24, device="cpu", checkpoint_every_s=0)
    whole = TwoPeers(task_of("gradual"), settings)
    assert TwoPeers(task_of("gradual"), settings, begun=whole.snapshots[4]).everything == whole.everything


@pytest.mark.parametrize("recipe", ["schedule", "groups"])
def test_a_newcomer_goes_on_with_the_learning_rate_of_the_others(recipe: str) -> None:
    """It joins after some rounds: the schedule follows the run's local steps, and not its own."""
    task = task_of(recipe)
    settings = Settings(peers=2, period="4", steps=steps_of(recipe), device="cpu", link="100mbit,5ms")
    usual = Scenario.plain(settings)
    groups = (Group(peers=3, link=usual.groups[0].link, step_s=0.05),)
    world = World(task, replace(usual, groups=groups, arrivals=((2, 0.9),)), lambda record: None)
    run_virtual(world.run(within_s=1000), seed=0)
    assert world.lives[2].trainer.steps < steps_of(recipe)
    groups_of = [[group["lr"] for group in life.trainer.optimizer.param_groups] for life in world.lives]
    assert groups_of[2] == groups_of[0] == groups_of[1]


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer, int], LRScheduler]] = {
    "warmup": module_of(task_of("schedule")).lr_schedule,
    "one cycle": lambda optimizer, steps: OneCycleLR(optimizer, 0.2, total_steps=steps),
    "by a function": lambda optimizer, steps: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_may_go_back_and_has_the_rates_of_the_steps_there(name: str) -> None:
    task = replace(task_of("schedule"), lr_schedule=SCHEDULES[name])
    optimizer = task.optimizer_of(first_model(task))
    schedule, rates = Schedule(task, optimizer, 30), []
    for step in range(30):
        schedule.go_to(step)
        rates.append(optimizer.param_groups[0]["lr"])
    assert len(set(rates)) == 30
    for step in (7, 29, 0, 12):
        schedule.go_to(step)
        assert optimizer.param_groups[0]["lr"] == rates[step]
    schedule.go_to(99)
    assert optimizer.param_groups[0]["lr"] == rates[-1], "a peer at its own pace may take more steps than the run has"


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_that_is_resumed_with_more_steps_goes_on_by_the_schedule_of_these(name: str) -> None:
    task = replace(task_of("schedule"), lr_schedule=SCHEDULES[name])
    first, longer, whole = (
        Trainer(task, seed=0, data_shard=0, data_shards=1, device=CPU, steps=steps) for steps in (10, 20, 20)
    )
    first.train(10)
    longer.restore(first.snapshot())
    for trainer in (longer, whole):
        trainer.train(5, step=10)
    assert longer.copy.learning_rate == whole.copy.learning_rate


def test_on_round_is_called_once_a_round_with_the_model_of_that_round() -> None:
    task, first = task_of("ema"), Simulated("ema", peers=2)
    average = {name: weights(model) for name, model in module_of(first.task).averages.items()}
    bare = module_of(task).loop(Bare(), first_model(task))
    assert set(average) == {"0", "1"}
    assert torch.equal(average["0"], average["1"])
    alone = Simulated("ema")
    assert torch.equal(weights(module_of(alone.task).averages["0"]), weights(bare))


@pytest.mark.parametrize("overlap", [pytest.param(True, id="overlap"), soaked(False, id="plain")])
def test_the_checkpoint_of_a_run_that_is_stopped_holds_what_on_round_did_after_its_last_exchange(
    overlap: bool,
) -> None:
    """Whenever it is stopped, also while a finished exchange waits behind local steps: on_round is not called again for
    that exchange when the run is resumed."""

    def model() -> nn.Module:
        counted = first_model(usual)
        counted.register_buffer("rounds", torch.zeros((), dtype=torch.int64))
        return counted

    def on_round(record: ExchangeRecord, run: Any) -> None:
        run.model.rounds += 1

    usual = load_task(RECIPES.parent / "tasks/union.py")
    task = replace(usual, model=model, on_round=on_round)
    run = Settings(peers=2, period="3", steps=24, device="cpu", checkpoint_every_s=1000.0, overlap=overlap)
    took_s, seen = TwoPeers(task, run, latency="0.1ms").took_s, set[int]()
    for moment in range(1, 30):
        stopped = TwoPeers(task, run, latency="0.1ms", stop_s=took_s * moment / 30)
        for snapshot in stopped.kept.values():
            exchange = snapshot.numbers["state"]["round"]
            assert int(snapshot.tensors["model/rounds"]) == exchange
            seen.add(exchange)
    assert {*range(1, 8)} <= seen


def test_of_a_model_with_adapters_only_the_adapters_travel() -> None:
    run = Simulated("lora", peers=2)
    model = run.trainers[0].model
    frozen = sum(one.numel() for one in model.parameters() if not one.requires_grad)
    whole = frozen + weights(model).numel()
    rounds = {record.version for record in run.exchanges}
    sent = sum(record.bytes_sent for record in run.exchanges) / len(run.exchanges)
    assert len(rounds) == 2
    assert {record.model_bytes for record in run.exchanges} == {run.trainers[0].copy.layout.nbytes}
    assert 20 * sent < whole * model.out.weight.element_size()
    assert {record.model_bytes for record in run.exchanges} == {weights(model).numel() * 4}


def test_workers_of_a_dataloader_draw_by_the_runs_seed() -> None:
    """Equal seeds give equal augmentations, other seeds and other peers others; a resumed peer goes on with them."""
    task = task_of("workers")

    def drawn(seed: int, part: int, steps: int = 6) -> Trainer:
        trainer = Trainer(task, seed=seed, data_shard=part, data_shards=2, device=CPU)
        trainer.train(steps)
        return trainer

    one = drawn(0, 0)
    assert torch.equal(one.vector, drawn(0, 0).vector)
    assert len({tuple(trainer.vector.tolist()) for trainer in (one, drawn(1, 0), drawn(0, 1))}) == 3
    before = drawn(0, 0, 3)
    snapshot = before.snapshot()
    after = Trainer(task, seed=0, data_shard=0, data_shards=2, device=CPU)
    after.restore(snapshot)
    after.train(3)
    assert torch.equal(one.vector, after.vector)


def test_a_simulated_peer_that_is_over_or_killed_leaves_no_workers_of_its_dataloader() -> None:
    before = set(children())
    settings = Settings(peers=3, period="3", steps=12, device="cpu", link="100mbit,5ms", patience_s=0.5)
    kill = Fault(kind=Kind.CRASH, who=(1,), at_step=4)
    world = World(task_of("workers"), replace(Scenario.plain(settings), faults=(kill,)), lambda record: None)
    run_virtual(world.run(within_s=100), seed=0)
    assert world.lives[0].result is not None
    assert set(children()) <= before


def test_the_arguments_of_a_recipe_make_another_model_than_its_usual_ones() -> None:
    as_given, usual = task_of("arguments"), load_task(RECIPES / "arguments.py")
    assert weights(first_model(as_given)).numel() > 2 * weights(first_model(usual)).numel()


def test_fp16_on_a_gpu_trains_as_a_plain_loop(tmp_path: Path) -> None:
    """A script and a task. Where there is no GPU the other tests try the same on the CPU."""
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU: fp16 is tried on its CPU alone")
    task = task_of("fp16")
    module_of(task).loop(Bare(), bare := first_model(task), "cuda")
    module_of(task).loop(begin(tmp_path, peers=1, period="4"), script := first_model(task), "cuda")
    trainer = Trainer(task, seed=0, data_shard=0, data_shards=1, device=torch.device("cuda:0"))
    trainer.train(steps_of("fp16"))
    for model in (script, trainer.model):
        torch.testing.assert_close(weights(model), weights(bare), rtol=0, atol=1e-5)
    assert not torch.allclose(weights(bare), weights(first_model(task)).cuda(), atol=1e-2), "it has learned"


def drawn_images(monkeypatch: pytest.MonkeyPatch, task: Task) -> None:
    """Have a recipe of image models train on a few random images, for which no file is needed."""
    generator = torch.Generator().manual_seed(1)
    pixels, labels = torch.randn(150, 1, 28, 28, generator=generator), torch.arange(150) % 10
    fashion = sys.modules[task.data.__module__]
    monkeypatch.setattr(fashion, "images", lambda kind: TensorDataset(pixels, labels))


@pytest.mark.parametrize("recipe", ["residual", soaked("patches")])
def test_a_script_of_an_image_model_whose_data_loader_has_workers_trains_as_a_plain_loop(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two epochs, shuffled: the run draws nothing of the script's own random numbers."""
    task, found = task_of(recipe), list[Tensor]()
    drawn_images(monkeypatch, task)
    for run in (Bare(), begin(tmp_path, peers=1, period="4")):
        model = first_model(task)
        torch.manual_seed(3)
        module_of(task).loop(run, model, steps=6)
        found.append(weights(model))
    assert torch.equal(*found)


def test_three_metrics_have_their_own_names_in_the_order_of_their_declaration() -> None:
    told = [record for record in Simulated("metrics", peers=2, evaluate_every=5).exchanges if record.metrics]
    assert told[0].version == 5
    assert list(told[0].metrics) == ["perplexity", "accuracy", "top 3"]
    assert told[0].metric_scales == {"perplexity": "lower", "accuracy": "higher %", "top 3": "higher %"}
    assert 1.0 < told[0].metrics["perplexity"] < 4.0
    assert 0.25 < told[0].metrics["accuracy"] < told[0].metrics["top 3"] <= 1.0


def test_a_body_that_is_unfrozen_by_its_rate_trains_from_the_same_round_on_everywhere() -> None:
    run = Simulated("unfreezing", peers=2)
    for trainer in run.trainers:
        assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.1, 0.1]
        assert torch.equal(trainer.vector, run.trainers[0].vector)
    early = Simulated("unfreezing", peers=2, steps=12).trainers[0].model
    first = first_model(run.task)
    assert torch.equal(early[0].weight, first[0].weight)  # type: ignore[index]
    assert not torch.equal(run.trainers[0].model[0].weight, first[0].weight)  # type: ignore[index]


@pytest.mark.soak
@pytest.mark.parametrize("recipe", ["residual", "patches"])
def test_two_scripts_of_an_image_model_reach_the_accuracy_of_one_process(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the next test, each in a loop and a process of its own, whose data loader has two workers."""
    task = task_of(recipe)
    fashion = with_images(task)
    (tmp_path / "mine.py").write_text(f"""
import sys, samovar, torch
sys.path.append({str(RECIPES)!r})
import {recipe} as recipe
run, model = samovar.join(), recipe.model()
recipe.loop(run, model)
print(float(recipe.evaluate(model.eval())))
""")
    ended = train(tmp_path, "train", "mine.py", "--peers", 2, "--period", 4, "--run", "run", "--no-report")
    assert ended.code == 0, ended.err
    one, other = (float((tmp_path / f"run/peer-{part}.log").read_text()) for part in range(2))
    monkeypatch.setattr(fashion, "BATCH", 64)
    module_of(task).loop(Bare(), model := first_model(task))
    alone = float(task.evaluate(model.eval()))  # type: ignore[misc]
    print(f"{recipe}: {one:.4f} of two scripts, {alone:.4f} of one process")
    assert alone > 0.80
    assert one == other > alone - 0.01


def with_images(task: Task) -> ModuleType:
    """The module that has the recipe's images. Skips the test where there are none."""
    fashion = sys.modules[task.data.__module__]
    if not fashion.FOLDER.exists():
        pytest.skip("Fashion-MNIST is not installed: apt-get install dataset-fashion-mnist")
    return fashion


@pytest.mark.soak
@pytest.mark.parametrize("recipe", ["residual", "patches"])
def test_two_peers_of_an_image_model_reach_the_accuracy_of_one_process(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1 % of the accuracy on Fashion-MNIST, in as many steps on the union of their batches; each peer has batch
    statistics of its own."""
    fashion = with_images(task_of(recipe))
    two = Simulated(recipe, peers=2, steps=600, period="4", evaluate_every=10**6)
    monkeypatch.setattr(fashion, "BATCH", 64)
    one = Simulated(recipe, peers=1, steps=600, evaluate_every=10**6)
    alone, together_ = (run.trainers[0].evaluate()["accuracy"] for run in (one, two))
    print(f"{recipe}: {together_:.4f} of two peers, {alone:.4f} of one")
    assert alone > 0.80
    assert together_ > alone - 0.01
