"""The digits example, whose evaluation also tells how many asyncio tasks its process has."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

import digits


def model() -> nn.Module:
    network: nn.Module = digits.model()
    return network


def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    steps: torch.optim.Optimizer = digits.optimizer(parameters)
    return steps


def data(part: int, parts: int) -> Any:
    return digits.data(part, parts)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    value: torch.Tensor = digits.loss(model, batch)
    return value


def evaluate(model: nn.Module) -> dict[str, float]:
    tasks = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task) and not one.done()]
    return {"accuracy": digits.evaluate(model), "tasks": float(len(tasks))}
