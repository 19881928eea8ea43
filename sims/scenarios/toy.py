"""The toy task of sweeps. Its model is so small that computing it takes hardly any time. The data differ from peer to
peer."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...peers.records.records import ExchangeRecord
from ...peers.task.task import Task
from .scenario import TOY_SIZE, Scenario

_BATCHES = 8


@lru_cache(maxsize=16)
def _inputs(size: int, data_shard: int) -> Tensor:
    """The inputs of a data shard, [batches, 4, size], kept for later runs: to draw those of a large model takes as long
    as a short run."""
    chance = torch.Generator().manual_seed(data_shard)
    inputs: Tensor = torch.randn(_BATCHES, 4, size, generator=chance) / size**0.5
    return inputs


def toy_task_of(scenario: Scenario) -> Task:
    """The toy task (`toy_task`) that the scenario's fields `toy_size`, `thaws` and `evaluates` describe."""
    return toy_task(scenario.toy_size, thaws=scenario.thaws, evaluates=scenario.evaluates)


def toy_task(size: int = TOY_SIZE, *, thaws: bool = False, evaluates: bool = False) -> Task:
    """Linear regression with `size` inputs on random data that differ between data shards. `thaws`: the bias is frozen
    at first, and the peers unfreeze it after different rounds. `evaluates`: it has the loss on the first shard as a
    metric."""

    def model() -> nn.Module:
        return nn.Linear(size, 1)

    def data(part: int, parts: int) -> list[tuple[Tensor, Tensor]]:
        return [(batch, batch.sum(1, keepdim=True) + part) for batch in _inputs(size, part)]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def query(rows: tuple[Tensor, Tensor], model: nn.Module) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(model, rows), list(model.parameters()))

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"loss": float(loss(model, data(0, 1)[0]))}

    task = Task(
        Path("toy"), model, data, loss, None, lambda parameters: torch.optim.SGD(parameters, lr=0.05), query=query
    )
    if evaluates:
        task = replace(task, evaluate=evaluate, metrics={"loss": "lower"})
    return _thawing(task) if thaws else task


def _thawing(task: Task) -> Task:
    def model() -> nn.Module:
        made = task.model()
        made.bias.requires_grad_(False)
        return made

    def on_round(record: ExchangeRecord, run: Any) -> None:
        if record.version >= 2 + zlib.crc32(run.name.split(".")[0].encode()) % 3:
            run.model.bias.requires_grad_(True)

    return replace(task, model=model, on_round=on_round)
