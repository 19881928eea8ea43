"""The optional functions and constants of a task file: what they do, and what is told where they cannot be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from live import verb
from torch import nn

from samovar.peers.checkpoints.checkpoint import CheckpointError
from samovar.peers.task.model_copy import Diverged
from samovar.peers.task.task import Task, TaskError, load_task
from samovar.peers.training.trainer import Trainer

CPU = torch.device("cpu")
LEAST = """
import torch
from torch import nn
def model(): return nn.Linear(2, 1)
def data(part, parts): return [torch.ones(4, 2)]
def loss(model, batch): return model(batch).square().mean()
"""


def task_with(folder: Path, text: str) -> Task:
    file = folder / "task.py"
    file.write_text(LEAST + text)
    return load_task(file)


def trainer_of(task: Task, steps: int | None = 10) -> Trainer:
    return Trainer(task, seed=0, data_shard=0, data_shards=1, device=CPU, steps=steps)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("clip = 0", "clip must be a norm above 0, or a function clip(model), got 0"),
        ("clip = True", "clip must be a norm above 0, or a function clip(model), got True"),
        ("clip = float('inf')", "clip must be a norm above 0, or a function clip(model), got inf"),
        ("accumulate = 2.0", "accumulate must be a whole number of batches, 1 or more, got 2.0"),
        ("accumulate = 0", "accumulate must be a whole number of batches, 1 or more, got 0"),
        ("def accumulate(): ...", "accumulate must be a whole number of batches, 1 or more, got <function accumulate"),
        ("precision = 'bfloat16'", 'precision must be "bf16" or "fp16", got \'bfloat16\''),
        ("def lr_schedule(optimizer): ...", "lr_schedule() must take (optimizer, steps), got"),
        ("def on_round(): ...", "on_round() must take (record), got on_round()"),
        ("def clip(model, norm): ...", "clip() must take (model), got clip(model, norm)"),
        ("samples = 3", "samples is not a function"),
        ("setup = 'x'", "setup is not a function setup(run)"),
        ("seed_everything = 3", "seed_everything is not a function seed_everything(seed); a run is seeded by --seed 3"),
    ],
)
def test_an_option_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(TaskError) as told:
        task_with(tmp_path, text)
    assert f"{tmp_path}/task.py: {line}" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def lr_schedule(optimizer, steps): return 0.1", "lr_schedule() must return a LRScheduler, got a float"),
        (
            "def lr_schedule(optimizer, steps): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
            "lr_schedule() returns a ReduceLROnPlateau, which follows a metric",
        ),
        (
            "def optimizer(parameters):\n"
            "    made = torch.optim.SGD(parameters, lr=0.1)\n"
            "    torch.optim.lr_scheduler.StepLR(made, 5)\n"
            "    return made",
            "optimizer() hooks a learning-rate schedule onto the optimizer, and nothing steps it",
        ),
    ],
)
def test_a_schedule_that_nothing_would_step_is_told(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(TaskError) as told:
        trainer_of(task_with(tmp_path, text))
    assert line in str(told.value)


def test_a_schedule_without_a_number_of_steps_is_told(tmp_path: Path) -> None:
    task = task_with(tmp_path, "def lr_schedule(o, steps): return torch.optim.lr_scheduler.StepLR(o, steps)")
    with pytest.raises(TaskError, match="needs the number of local steps: give --steps"):
        trainer_of(task, None)


def test_an_optimizer_is_given_the_model_or_its_parameters_by_the_name_of_its_argument(tmp_path: Path) -> None:
    given: list[Any] = []
    task = task_with(tmp_path, "")

    def of_model(model: Any) -> torch.optim.Optimizer:
        given.append(model)
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def of_net(net: nn.Module) -> torch.optim.Optimizer:
        return of_model(net)

    def of_parameters(parameters: Any) -> torch.optim.Optimizer:
        given.append(parameters)
        return torch.optim.SGD(parameters, lr=0.1)

    for function in (of_model, of_net, of_parameters):
        trainer_of(replace(task, optimizer=function))
    assert [isinstance(one, nn.Module) for one in given] == [True, True, False]


def test_samples_weigh_a_contribution(tmp_path: Path) -> None:
    trainer = trainer_of(task_with(tmp_path, "def samples(batch): return batch.sum() / 3"))
    trainer.train(3)
    assert trainer.update().weight == pytest.approx(8.0)
    plain = trainer_of(task_with(tmp_path, ""))
    plain.train(3)
    assert plain.update().weight == 12.0


@pytest.mark.parametrize("value", ["None", "-1", "float('nan')", "'many'", "batch"])
def test_samples_that_are_no_number_are_told(tmp_path: Path, value: str) -> None:
    trainer = trainer_of(task_with(tmp_path, f"def samples(batch): return {value}"))
    with pytest.raises(TaskError, match=r"samples\(\) must return a number, 0 or more, got"):
        trainer.train(1)


def test_a_function_may_clip_and_does_so_before_the_optimizers_step(tmp_path: Path) -> None:
    text = "def clip(model):\n    for one in model.parameters(): one.grad.zero_()"
    trainer = trainer_of(task_with(tmp_path, text))
    before = trainer.vector
    trainer.train(3)
    assert torch.equal(trainer.vector, before)


def test_a_norm_bounds_the_step(tmp_path: Path) -> None:
    trainer = trainer_of(task_with(tmp_path, "clip = 1e-3"))
    before = trainer.vector
    trainer.train(1)
    assert float((trainer.vector - before).norm()) == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_a_scaler_leaves_out_a_step_that_overflows_and_its_loss(tmp_path: Path) -> None:
    text = "precision = 'fp16'\ncalls = []\ndef loss(model, batch):\n    calls.append(1)\n"
    text += "    return model(batch).square().mean() * (float('inf') if len(calls) == 2 else 1.0)\n"
    trainer = trainer_of(task_with(tmp_path, text))
    trainer.train(3)
    assert torch.isfinite(trainer.vector).all()
    assert 0 < trainer.update().loss < float("inf")
    scale = trainer.snapshot().numbers["scaler"]["scale"]
    assert 0 < scale < torch.amp.GradScaler("cpu").get_scale()


def test_a_round_without_any_finite_loss_has_diverged_under_a_scaler_too(tmp_path: Path) -> None:
    text = "precision = 'fp16'\ndef loss(model, batch): return model(batch).mean() * float('nan')\n"
    with pytest.raises(Diverged):
        trainer_of(task_with(tmp_path, text)).train(3)


def test_a_checkpoint_of_a_task_without_the_schedule_is_told(tmp_path: Path) -> None:
    step = "def lr_schedule(optimizer, steps): return torch.optim.lr_scheduler.StepLR(optimizer, 2)"
    plain, scheduled = trainer_of(task_with(tmp_path, "")), trainer_of(task_with(tmp_path, step))
    with pytest.raises(CheckpointError, match=r"of another lr_schedule\(\) than .*: none there, one here"):
        scheduled.restore(plain.snapshot())
    with pytest.raises(CheckpointError, match=r"of another lr_schedule\(\) than .*: one there, none here"):
        plain.restore(scheduled.snapshot())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "def model(): return nn.Linear(4, 2)",
            r"model than .*other\.py: tensor 'weight' is .*; 1 more differ: 'bias'$",
        ),
        (
            "def optimizer(model): return torch.optim.Adam(model.parameters())",
            r"optimizer than .*other\.py: SGD, not Adam$",
        ),
        (
            "def optimizer(model): return torch.optim.SGD([{'params': [one]} for one in model.parameters()], lr=0.1)",
            r"optimizer than .*other\.py: its groups have \[2\] parameters there and \[1, 1\] here$",
        ),
        (
            "def lr_schedule(optimizer, steps): return torch.optim.lr_scheduler.StepLR(optimizer, 2)",
            r"lr_schedule\(\) than .*other\.py: none there, one here$",
        ),
    ],
)
def test_a_checkpoint_of_another_task_names_the_task_that_wrote_it_and_the_difference(
    tmp_path: Path, text: str, line: str
) -> None:
    written = trainer_of(task_with(tmp_path, "")).snapshot()
    other = (tmp_path / "task.py").rename(tmp_path / "other.py")
    other.write_text(f"{other.read_text()}\n{text}\n")
    with pytest.raises(CheckpointError, match=r"^the checkpoint is of another task \(task\.py\), of another " + line):
        trainer_of(load_task(other)).restore(written)


def test_trying_a_task_before_its_training_changes_nothing(tmp_path: Path) -> None:
    text = """
def model(): return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
class Noisy(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, index): return torch.full((2,), float(index)) + torch.rand(())
def data(part, parts): return torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True)
def evaluate(model): return model(torch.randn(4, 2)).mean()
"""
    task = task_with(tmp_path, text)
    tried, other, saved, resumed = (trainer_of(task) for _ in range(4))
    tried.rehearse()
    assert all(one.grad is None for one in tried.model.parameters())
    saved.train(2)
    saved.rehearse()  # amid an epoch, and between that and its next step it is saved
    resumed.restore(saved.snapshot())
    resumed.rehearse()
    for trainer, steps in ((tried, 5), (other, 5), (saved, 3), (resumed, 3)):
        trainer.train(steps)
        assert torch.equal(trainer.vector, tried.vector)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def loss(model, batch): return 3", "loss() must return a scalar tensor, got an int"),
        (
            "def data(part, parts): return None",
            "data() must return an iterable of batches, got None: is its return missing",
        ),
        ("def data(part, parts): return 3", "data() must return an iterable of batches, got an int"),
        ("def samples(batch): return None", "samples() must return a number, 0 or more, got None"),
        ("def clip(model): raise ValueError('of the user')", "of the user"),
        ("def evaluate(model): return 'good'", "evaluate() returned 'good'; a number"),
        ("def setup(run): raise ValueError('no such disk')", "no such disk"),
        ("def optimizer(model): return 3", "optimizer() must return an Optimizer, got an int"),
    ],
)
def test_a_bad_function_is_told_before_training(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "task.py").write_text(LEAST + text)
    done = verb("simulate", str(tmp_path / "task.py"), "--peers", "2", "--steps", "4", "--run", str(tmp_path / "run"))
    assert done.exit_code != 0
    assert line in done.stderr
    assert not any(file.read_text().count('"round"') for file in (tmp_path / "run").glob("*.jsonl"))


def test_setup_and_on_round_are_given_this_peers_own(tmp_path: Path) -> None:
    text = """
seen = []
def setup(run): seen.append((run.name, run.part, run.parts, run.steps, run.model))
def on_round(record): seen.append(record)
"""
    task = task_with(tmp_path, text)
    trainer = trainer_of(task)
    trainer.hooks.setup("7", tmp_path)
    (seen,) = task.model.__globals__["seen"]  # type: ignore[attr-defined]
    assert seen == ("7", 0, 1, 10, trainer.model)


def test_a_loss_that_changes_its_batch_in_place_trains_on_it_as_it_came(tmp_path: Path) -> None:
    text = """
def data(part, parts): return [{"x": torch.ones(4, 2), "y": torch.ones(4, 1)} for _ in range(3)]
def loss(model, batch):
    batch["x"].mul_(0.5)
    return (model(batch["x"]) - batch.pop("y")).square().mean()
"""
    task = task_with(tmp_path, text)
    tried, other = trainer_of(task), trainer_of(task)
    tried.rehearse()
    for trainer in (tried, other):
        trainer.train(3)
    assert torch.equal(tried.vector, other.vector)


def test_random_draws_of_data_are_the_same_in_each_epoch_and_after_a_resume(tmp_path: Path) -> None:
    text = """
def data(part, parts):
    mine, _ = torch.utils.data.random_split(torch.randn(16, 2), [8, 8])
    return torch.utils.data.DataLoader(mine, batch_size=4, shuffle=True)
"""
    task = task_with(tmp_path, text)
    whole, first, resumed = (trainer_of(task) for _ in range(3))
    whole.train(9)
    first.train(5)
    resumed.restore(first.snapshot())
    resumed.train(4)
    assert torch.equal(whole.vector, resumed.vector)


def test_a_round_of_samples_without_weight_is_told(tmp_path: Path) -> None:
    trainer = trainer_of(task_with(tmp_path, "def samples(batch): return 0"))
    trainer.train(2)
    with pytest.raises(TaskError, match=r"samples\(\) returned 0 for all batches of a round"):
        trainer.update()


@pytest.mark.parametrize("round_", [1, 2])
def test_an_error_of_on_round_ends_the_run_and_is_told_as_that(tmp_path: Path, round_: int) -> None:
    """In the last round too."""
    text = f"def on_round(record):\n    if record.version == {round_}: raise RuntimeError('out of ink')\n"
    (tmp_path / "task.py").write_text(LEAST + text)
    flags = ("--peers", "2", "--steps", "4", "--period", "2", "--run", str(tmp_path / "run"))
    done = verb("simulate", str(tmp_path / "task.py"), *flags)
    assert done.exit_code != 0
    assert "RuntimeError: out of ink" in done.stderr


def test_a_schedule_has_the_usual_number_of_steps_where_none_is_given(tmp_path: Path) -> None:
    text = "def lr_schedule(o, steps):\n    assert steps == 2000\n    raise ValueError('as it should be')"
    (tmp_path / "task.py").write_text(LEAST + text)
    done = verb("simulate", str(tmp_path / "task.py"), "--peers", "2", "--run", str(tmp_path / "run"))
    assert "as it should be" in done.stderr
