"""A task whose steps are whole numbers, so that the sum of all changes is exact."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from samovar.peers.task.task import Task

SIZE = 300


def counting_task() -> Task:
    """A model from which each step subtracts whole numbers, which do not depend on where it is."""

    def model() -> nn.Module:
        made = nn.Linear(SIZE, 1, bias=False)
        nn.init.zeros_(made.weight)
        return made

    def data(part: int, parts: int) -> list[Tensor]:
        return [steps(part)]

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        weight = model.weight
        assert isinstance(weight, Tensor)
        return (weight * batch).sum()

    return Task(Path("counting"), model, data, loss, None, lambda parameters: torch.optim.SGD(parameters, lr=1.0))


def steps(part: int) -> Tensor:
    """What each step of the worker with this part of the data subtracts, [1, SIZE]."""
    return torch.randint(-3, 4, (1, SIZE), generator=torch.Generator().manual_seed(part)).float()
