"""The trainer: plain PyTorch, repeatable, resumable to the bit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from samovar.aggregation.periods.fixed import Fixed
from samovar.peers.checkpoints.checkpoint import CheckpointError, Snapshot, load, save
from samovar.peers.task.model_copy import Diverged
from samovar.peers.task.task import Task, TaskError, kind_of, load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.local_sgd.checkpoint import position_of
from samovar.protocols.local_sgd.state import State
from samovar.protocols.work import Load

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


def noisy_task(batches: int = 5) -> Task:
    """Dropout, BatchNorm and shuffling: everything that could make two runs differ."""

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))

    def data(part: int, parts: int) -> object:
        inputs = torch.randn(batches * 4, 4, generator=torch.Generator().manual_seed(part))
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs), batch_size=4, shuffle=True)

    def loss(model: nn.Module, batch: object) -> torch.Tensor:
        return model(batch[0]).square().mean()  # type: ignore[index]

    def optimizer(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)  # type: ignore[arg-type]

    return Task(Path("noisy.py"), model, data, loss, None, optimizer)  # type: ignore[arg-type]


def trainer_of(task: Task, part: int = 0, seed: int = 3) -> Trainer:
    return Trainer(task, seed=seed, data_shard=part, data_shards=2, device=CPU)


def weights(trainer: Trainer) -> torch.Tensor:
    return trainer.vector


def test_the_same_seed_and_part_give_the_same_weights_and_another_part_others() -> None:
    runs = [trainer_of(noisy_task(), part) for part in (0, 0, 1)]
    for trainer in runs:
        trainer.train(12)
    assert torch.equal(weights(runs[0]), weights(runs[1]))
    assert not torch.equal(weights(runs[0]), weights(runs[2]))


def test_all_peers_of_a_seed_begin_with_the_same_weights() -> None:
    assert torch.equal(weights(trainer_of(noisy_task(), 0)), weights(trainer_of(noisy_task(), 1)))
    assert not torch.equal(weights(trainer_of(noisy_task())), weights(trainer_of(noisy_task(), seed=4)))


def test_trainers_that_share_a_process_do_not_share_their_chance() -> None:
    alone = trainer_of(noisy_task())
    alone.train(10)
    one, other = trainer_of(noisy_task()), trainer_of(noisy_task(), 1)
    for _ in range(10):
        one.train(1)
        other.train(1)
    assert torch.equal(weights(alone), weights(one))


@pytest.mark.parametrize("draw", [lambda: torch.rand(1).item(), np.random.rand, random.random])
def test_evaluation_and_other_peers_draw_nothing_of_a_peers_own_chance(draw: Callable[[], float]) -> None:
    task = replace(noisy_task(), loss=lambda model, batch: model(batch[0]).mean() * draw())
    task = replace(task, evaluate=lambda model: draw())
    alone, disturbed, other = (trainer_of(task, part) for part in (0, 0, 1))
    alone.train(10)
    for _ in range(10):
        disturbed.train(1)
        disturbed.evaluate()
        other.train(1)
    assert torch.equal(weights(alone), weights(disturbed))
    assert disturbed.evaluate() == disturbed.evaluate()


@pytest.mark.parametrize("draw", [lambda: torch.rand(1).item(), np.random.rand, random.random])
def test_a_resumed_trainer_draws_the_same_random_numbers(tmp_path: Path, draw: Callable[[], float]) -> None:
    task = replace(noisy_task(), loss=lambda model, batch: model(batch[0]).mean() * draw())
    straight, stopped, resumed = (trainer_of(task) for _ in range(3))
    straight.train(10)
    stopped.train(4)
    save(tmp_path / "peer.safetensors", stopped.snapshot())
    stopped.train(3)
    resumed.restore(load(tmp_path / "peer.safetensors"))
    resumed.train(6)
    assert torch.equal(weights(straight), weights(resumed))


@pytest.mark.parametrize("taken", [1, 4, 5, 7, 13])
def test_a_resumed_trainer_goes_on_to_the_same_bits(tmp_path: Path, taken: int) -> None:
    straight = trainer_of(noisy_task())
    straight.train(20)
    first = trainer_of(noisy_task())
    first.train(taken)
    save(tmp_path / "checkpoint", first.snapshot())
    second = trainer_of(noisy_task())
    second.restore(load(tmp_path / "checkpoint"))
    second.train(20 - taken)
    assert torch.equal(weights(straight), weights(second))
    assert (straight.update().loss, straight.steps) == (second.update().loss, second.steps)
    counters = [int(trainer.model[1].num_batches_tracked) for trainer in (straight, second)]  # type: ignore[index,union-attr]
    assert counters == [20, 20]


def test_a_checkpoint_of_another_model_is_refused_in_one_line() -> None:
    task, snapshot = noisy_task(), trainer_of(noisy_task()).snapshot()
    other = Task(task.path, lambda: nn.Linear(4, 1), task.data, task.loss, None, task.optimizer)
    with pytest.raises(CheckpointError, match=r"another model than noisy\.py"):
        trainer_of(other).restore(snapshot)


def test_a_checkpoint_of_another_optimizer_is_refused_in_one_line() -> None:
    task, snapshot = noisy_task(), trainer_of(noisy_task()).snapshot()
    other = replace(task, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    with pytest.raises(CheckpointError, match=r"another optimizer than noisy\.py: Adam, not SGD$"):
        trainer_of(other).restore(snapshot)


def test_a_contribution_is_weighted_by_samples_and_loading_begins_a_new_round() -> None:
    trainer = trainer_of(noisy_task())
    trainer.train(3)
    brought = trainer.update()
    assert (brought.weight, brought.steps, brought.learning_rate) == (12.0, 3, 0.01)
    trainer.begin(Load(torch.zeros(trainer.copy.layout.size)))
    assert float(weights(trainer).abs().max()) == 0.0
    assert trainer.update().weight == 0.0


def test_a_loss_that_is_no_number_is_told_with_its_step() -> None:
    task = noisy_task()
    nan = Task(task.path, task.model, task.data, lambda m, b: m(b[0]).mean() * float("nan"), None, task.optimizer)
    with pytest.raises(Diverged, match=r"the loss of the first batch is not finite: look into data\(\), model\(\)"):
        trainer_of(nan).train(2)
    losses = iter([1.0, 1.0, 1.0, math.nan, 1.0])
    later = replace(noisy_task(), loss=lambda model, batch: model(batch[0]).mean() * next(losses))
    trainer = trainer_of(later)
    trainer.train(2)
    trainer.begin(Load(trainer.vector))
    with pytest.raises(Diverged, match=r"not finite any more at local step 4 \(learning rate 0\.01\); lower the"):
        trainer.train(3)


def test_training_stops_between_two_steps() -> None:
    trainer = trainer_of(noisy_task())
    assert trainer.train(100, stopping=lambda: trainer.steps >= 6) == 6


def test_data_without_batches_is_told() -> None:
    task = noisy_task()
    empty = Task(task.path, task.model, lambda part, parts: [], task.loss, None, task.optimizer)
    with pytest.raises(TaskError, match=r"noisy.py: data\(0, 2\) gives no batches"):
        trainer_of(empty).train(1)


def test_integer_buffers_stay_each_peers_own_and_statistics_are_averaged() -> None:
    names = [slot.name for slot in trainer_of(noisy_task()).copy.layout.slots]
    assert "1.running_mean" in names
    assert "1.running_var" in names
    assert "1.num_batches_tracked" not in names


def test_tied_weights_are_averaged_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    task = noisy_task()
    trainer = trainer_of(Task(task.path, Tied, task.data, task.loss, None, task.optimizer))
    assert trainer.copy.layout.size == 9


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "no such file"),
        ("def model(): ...\ndef data(a, b): ...\n", r"it has no loss\(\)"),
        ("x = (", "not Python"),
        ("print('hello')\n", "neither a task"),
        ("model = 3\n", r"this training script does not call samovar.join\(\): add run = samovar.join\(\) and "),
        ("import nothing_of_that_name\ndef model(): ...\ndef data(): ...\ndef loss(): ...\n", "cannot be imported"),
        ("loss = 3\ndef model(): ...\ndef data(): ...\n", "loss is not a function"),
        (
            "def model(): ...\ndef data(): ...\ndef loss(model, batch): ...\n",
            r"data\(\) must take \(part, parts\), got data\(\)",
        ),
    ],
)
def test_a_bad_task_is_one_clear_line(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "task.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TaskError, match=problem) as caught:
        load_task(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_examples_are_of_their_stated_kind_and_length() -> None:
    assert kind_of(ROOT / "examples/digits.py") == "task"
    assert kind_of(ROOT / "examples/existing_loop.py") == "script"
    assert len((ROOT / "examples/digits.py").read_text().splitlines()) <= 60
    marked = [line for line in (ROOT / "examples/existing_loop.py").read_text().splitlines() if "# (" in line]
    assert len(marked) == 5


def test_a_trainer_that_has_gone_on_is_for_a_moment_as_it_was_when_it_brought_its_model() -> None:
    trainer = Trainer(noisy_task(), seed=3, data_shard=0, data_shards=1, device=CPU)
    trainer.train(3)
    brought = trainer.update()
    trainer.begin_round()
    trainer.train(2)
    ahead, loss = trainer.vector, trainer.update().loss
    state = State(0, 0, brought.vector, (), Fixed(3).start())

    def keep(snapshot: Snapshot) -> None:
        assert torch.equal(trainer.vector, brought.vector)
        again = trainer.update()
        assert (trainer.steps, trainer.steps_in_round, again.weight) == (3, 3, brought.weight)
        assert again.loss == pytest.approx(brought.loss)

    trainer.save(position_of(state, None, brought), keep, failed=False)
    assert torch.equal(trainer.vector, ahead)
    assert not torch.equal(ahead, brought.vector), "the control: it had gone on"
    assert (trainer.steps, trainer.steps_in_round, trainer.update().loss) == (5, 2, loss)
