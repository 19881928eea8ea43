"""A task for sweeps: its model is so small that only communication takes time. Each peer has different data."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ...peers.task.task import Task
from .scenario import TOY_SIZE

_BATCHES = 8


def toy_task(size: int = TOY_SIZE) -> Task:
    """Least squares on noise with `size` inputs, different on every peer."""

    def model() -> nn.Module:
        return nn.Linear(size, 1)

    def data(part: int, parts: int) -> list[tuple[Tensor, Tensor]]:
        chance = torch.Generator().manual_seed(part)
        inputs = torch.randn(_BATCHES, 4, size, generator=chance) / size**0.5
        return [(batch, batch.sum(1, keepdim=True) + part) for batch in inputs]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    return Task(Path("toy"), model, data, loss, None, lambda parameters: torch.optim.SGD(parameters, lr=0.05))
