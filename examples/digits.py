"""Handwritten digits (scikit-learn, 1,797 images of 8 x 8), a small network: a task file in full.

samovar train examples/digits.py --peers 4
"""

from collections.abc import Iterator
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16


@cache
def images(held_out: bool) -> TensorDataset:
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    chosen = (torch.arange(len(labels)) % 5 == 0) == held_out
    return TensorDataset(inputs[chosen], labels[chosen])


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def data(part: int, parts: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    everything = images(held_out=False)
    mine = range(part, len(everything), parts)
    return DataLoader(torch.utils.data.Subset(everything, mine), batch_size=BATCH, shuffle=True)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def evaluate(model: nn.Module) -> float:
    inputs, labels = images(held_out=True).tensors
    device = next(model.parameters()).device
    return float((model(inputs.to(device)).argmax(1).cpu() == labels).float().mean())
