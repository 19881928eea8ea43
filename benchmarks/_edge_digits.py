"""The digits example without scikit-learn's code, which takes as much memory as an edge peer: only its file is read."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

BATCH = 16


def images(held_out: bool) -> TensorDataset:
    found = importlib.util.find_spec("sklearn")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    rows = torch.from_numpy(numpy.loadtxt(file, delimiter=",", dtype=numpy.float32))
    chosen = (torch.arange(len(rows)) % 5 == 0) == held_out
    return TensorDataset(rows[chosen, :-1] / 16, rows[chosen, -1].long())


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def data(part: int, parts: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    everything = images(held_out=False)
    return DataLoader(Subset(everything, range(part, len(everything), parts)), batch_size=BATCH, shuffle=True)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def evaluate(model: nn.Module) -> float:
    inputs, labels = images(held_out=True).tensors
    return float((model(inputs).argmax(1) == labels).float().mean())
