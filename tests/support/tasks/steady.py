"""Ten clusters, with local steps of at least 3 ms, so that a test can reach into a run. It imports nothing but PyTorch:
the digits of the example would keep each peer of each test for a second longer."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

SAMPLES, SIZE, CLASSES = 1440, 64, 10


def drawn(seed: int, count: int) -> TensorDataset:
    centres = torch.randn(CLASSES, SIZE, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return TensorDataset(0.25 * (centres[labels] + 1.7 * torch.randn(count, SIZE, generator=generator)), labels)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(SIZE, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def data(part: int, parts: int) -> DataLoader:
    return DataLoader(Subset(drawn(1, SAMPLES), range(part, SAMPLES, parts)), batch_size=16, shuffle=True)


def loss(model: nn.Module, batch) -> torch.Tensor:
    time.sleep(0.003)
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def evaluate(model: nn.Module) -> float:
    inputs, labels = drawn(2, 400).tensors
    return (model(inputs).argmax(1) == labels).float().mean().item()
