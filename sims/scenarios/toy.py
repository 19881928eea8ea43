"""The toy task of sweeps. Its model is so small that computing it takes hardly any time. The data differ from peer to
peer."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from ...peers.task.task import Task
from .scenario import TOY_SIZE

_BATCHES = 8


@lru_cache(maxsize=16)
def _inputs(size: int, data_shard: int) -> Tensor:
    """The inputs of a data shard, [batches, 4, size], kept for later runs: to draw those of a large model takes as long
    as a short run."""
    chance = torch.Generator().manual_seed(data_shard)
    inputs: Tensor = torch.randn(_BATCHES, 4, size, generator=chance) / size**0.5
    return inputs


def toy_task(size: int = TOY_SIZE) -> Task:
    """Linear regression with `size` inputs on random data that differ between data shards."""

    def model() -> nn.Module:
        return nn.Linear(size, 1)

    def data(part: int, parts: int) -> list[tuple[Tensor, Tensor]]:
        return [(batch, batch.sum(1, keepdim=True) + part) for batch in _inputs(size, part)]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def query(rows: tuple[Tensor, Tensor], model: nn.Module) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(model, rows), list(model.parameters()))

    return Task(
        Path("toy"), model, data, loss, None, lambda parameters: torch.optim.SGD(parameters, lr=0.05), query=query
    )
