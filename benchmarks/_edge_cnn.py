"""A convolutional network of 1.6 million parameters on the digits: much to send for an edge peer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parent))

from _edge_digits import data, evaluate, loss

__all__ = ["data", "evaluate", "loss", "model", "optimizer"]


def model() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(1024, 1536), nn.ReLU(),
        nn.Linear(1536, 10),
    )  # fmt: skip


def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)
