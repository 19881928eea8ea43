"""A regression with batch norm, whose running variances fall far below the 1 with which they begin, at once, and rise
and fall again and again: the scale of the inputs changes from batch to batch. `LEAST` has the least of them."""

import torch
from torch import nn

ROWS, STEPS = 8, 50
LEAST: list[float] = []


def model():
    return nn.Sequential(
        nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=0.5), nn.Tanh(), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 1)
    )


def data(part, parts):
    generator = torch.Generator().manual_seed(1 + part)
    scales = [3.0 if step % 16 == 5 else 0.05 for step in range(STEPS)]
    inputs = [scale * torch.randn(ROWS, 4, generator=generator) for scale in scales]
    return [(batch, batch.sum(1, keepdim=True).sin()) for batch in inputs]


def loss(model, batch):
    LEAST.extend(float(one.running_var.min()) for one in (model[1], model[3]))
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.05)
