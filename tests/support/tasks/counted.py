"""A model of 100,000 parameters. In each local step a peer writes down how many vectors as large it holds."""

import gc
import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE, CLASSES = 100, 1000


def model() -> nn.Module:
    return nn.Linear(SIZE, CLASSES, bias=False)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def data(part: int, parts: int) -> DataLoader:
    generator = torch.Generator().manual_seed(part)
    inputs = torch.randn(64, SIZE, generator=generator)
    return DataLoader(TensorDataset(inputs, torch.randint(CLASSES, (64,), generator=generator)), batch_size=8)


def loss(model: nn.Module, batch) -> torch.Tensor:
    tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    storages = {
        one.untyped_storage().data_ptr() for one in tensors if one.untyped_storage().nbytes() >= 4 * SIZE * CLASSES
    }
    file = Path(os.environ["COUNTED"], f"{os.getpid()}.new")
    file.write_text(str(len(storages)), encoding="ascii")
    file.replace(file.with_suffix(""))
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)
