"""Every push is of whole numbers, so sums are exact: a push that is lost, or that counts twice, shows in them.

With `--algorithm downpour --server-update add` the model is the sum of all pushes, which `whole_numbers` tells.
"""

import torch
from torch import nn

SIZE, BATCHES = 48, 400


def pushes(part: int) -> torch.Tensor:
    """The changes [BATCHES, SIZE] of the steps of one worker, one after another."""
    chance = torch.Generator().manual_seed(part)
    return torch.randint(-1000, 1000, (BATCHES, SIZE), generator=chance).double()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))


def model() -> Model:
    return Model()


def data(part: int, parts: int) -> list[torch.Tensor]:
    return list(pushes(part))


def loss(model: Model, batch: torch.Tensor) -> torch.Tensor:
    """Its gradient is -`batch`, wherever the model is."""
    return -(model.values * batch).sum()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1.0)
