"""A task's tables: what rows(batch) may say, and batches that are drawn ahead of their steps."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from live import ROOT, verb
from torch import nn

from samovar.aggregation.rows import Rows
from samovar.peers.task.row_tables import RowTables
from samovar.peers.task.task import Task, TaskError, load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.work import Keep, Load, Steps, Work

WORDS = ROOT / "tests/support/tasks/words.py"
CPU = torch.device("cpu")


def trainer(task: Task, **shard: int) -> Trainer:
    return Trainer(task, seed=0, **{"data_shard": 0, "data_shards": 2, **shard}, device=CPU)


def rows_told(told: Callable[[Any], Any]) -> dict[str, torch.Tensor]:
    task = replace(load_task(WORDS), rows=told)
    return RowTables(task, task.model()).needed([*task.data(0, 1)][:2])


def test_rows_are_told_once_each_and_in_order() -> None:
    told = rows_told(lambda batch: {"words": torch.tensor([[7, 3], [7, 0]])})
    assert {name: ids.tolist() for name, ids in told.items()} == {"words": [0, 3, 7]}
    assert rows_told(lambda batch: {}) == {}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (lambda batch: batch[0], "must return a dict"),
        (lambda batch: None, "return missing"),
        (lambda batch: {"word": batch[0]}, "told of 'word'"),
        (lambda batch: {"words": [1, 2]}, "int64 tensors, got a list"),
        (lambda batch: {"words": batch[2]}, "int64 tensors, got a tensor of torch.float32"),
        (lambda batch: {"words": batch[0] + 60}, "which has rows 0 to 59"),
        (lambda batch: {"words": batch[0] - 60}, "asked for row -"),
    ],
)
def test_rows_that_a_table_does_not_have_are_refused_in_one_line(told: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(TaskError, match=said) as error:
        rows_told(told)
    assert "\n" not in str(error.value)


def test_rows_without_a_sparse_embedding_are_refused() -> None:
    with pytest.raises(TaskError, match="no nn"):
        trainer(replace(load_task(WORDS), model=lambda: nn.Linear(2, 1)))


def test_types_that_differ_are_refused() -> None:
    def mixed() -> nn.Module:
        model: Any = load_task(WORDS).model()
        model.words.double()
        return model

    with pytest.raises(ValueError, match="give all one type"):
        trainer(replace(load_task(WORDS), model=mixed))


def stepped(task: Task) -> Trainer:
    """A trainer after a step from the rows that it had told of."""
    one = trainer(task)
    needed = one.foresee(1).needed
    tables = {"words": one.model.words, "contexts": one.model.contexts}
    rows = {name: Rows(ids, tables[name].weight.detach()[ids] + 1) for name, ids in needed.items()}
    update = one.do(Work(Load(one.vector, rows=rows), Steps(1)))
    assert update is not None
    assert {name: some.ids.tolist() for name, some in update.rows.items()} == {
        name: ids.tolist() for name, ids in needed.items()
    }
    assert all(0 < (some.values - rows[name].values).abs().max() < 1 for name, some in update.rows.items())
    return one


def test_a_step_begins_from_the_rows_that_were_loaded_and_brings_them() -> None:
    task = load_task(WORDS)
    before, after = trainer(task).model.words.weight, stepped(task).model.words.weight
    first = next(iter(task.data(0, 2)))[0].unique()
    others = torch.ones(60, dtype=torch.bool)
    others[first] = False
    assert torch.equal(before[others], after[others]), "no other row has changed"


def test_a_row_that_loss_uses_and_rows_leaves_out_is_named() -> None:
    task = load_task(WORDS)
    with pytest.raises(TaskError, match=r"loss\(\) used row \d+ of table 'words', which rows\(\) did not tell of"):
        stepped(replace(task, rows=lambda batch: {"words": batch[0][:2], "contexts": batch[1]}))


def test_a_table_that_is_used_whole_is_refused() -> None:
    task = load_task(WORDS)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return task.loss(model, batch) + model.words.weight.square().mean()

    with pytest.raises((TaskError, RuntimeError), match="dense gradient"):
        stepped(replace(task, loss=loss))


def test_batches_that_are_drawn_ahead_come_in_their_order_and_passes_are_counted_as_they_are_used() -> None:
    plain, ahead = trainer(load_task(WORDS)), trainer(load_task(WORDS))
    for steps in (3, 4, 5, 2):
        ahead.foresee(steps)
        used = [ahead.batches.next() for _ in range(steps)]
        expected = [plain.batches.next() for _ in range(steps)]
        assert all(
            torch.equal(one, other)
            for mine, its in zip(used, expected, strict=True)
            for one, other in zip(mine, its, strict=True)
        )
        here, there = ahead.batches.to_plain()[1], plain.batches.to_plain()[1]
        assert all(here[place] == there[place] for place in ("epoch", "batch", "passes"))


@pytest.mark.parametrize("used", [0, 7, 9, 10, 13])
def test_a_checkpoint_amid_batches_that_were_drawn_ahead_loses_none(used: int) -> None:
    """The data have 10 batches."""
    task = load_task(WORDS)
    one = trainer(task)
    for _ in range(used):
        one.batches.next()
    one.foresee(4)
    again = trainer(task)
    again.restore(one.snapshot())
    for _ in range(8):
        mine, its = again.batches.next(), one.batches.next()
        assert all(torch.equal(here, there) for here, there in zip(mine, its, strict=True))


def test_tables_are_averaged_as_all_parameters_where_no_rows_are_taken(tmp_path: Path) -> None:
    ended = verb("simulate", WORDS, "--peers", 2, "--steps", 8, "--period", 2, "--json")
    assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize("algorithm", ["easgd:0.2:2", "downpour:1:2"])
def test_an_algorithm_that_does_not_pull_at_each_turn_is_refused(algorithm: str) -> None:
    ended = verb(
        "simulate", WORDS, "--peers", 2, "--protocol", "parameter-server", "--algorithm", algorithm, "--steps", 4
    )
    assert ended.exit_code != 0
    assert "does not pull at each turn, as a task with rows() needs" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_keeping_the_model_brings_no_rows() -> None:
    one = trainer(load_task(WORDS))
    update = one.do(Work(Keep(), Steps(0)))
    assert update is not None
    assert update.rows == {}
