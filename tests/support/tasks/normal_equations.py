"""Least squares in float64. The rows of all partitions together are `rows(parts)`."""

import torch
from torch import nn

COEFFICIENTS, ROWS = 6, 240


def model():
    return nn.Linear(COEFFICIENTS, 1, bias=False).double()


def rows(parts):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(ROWS, COEFFICIENTS, generator=generator, dtype=torch.float64)
    noise = torch.randn(ROWS, generator=generator, dtype=torch.float64)
    return inputs, inputs @ torch.arange(1.0, COEFFICIENTS + 1, dtype=torch.float64) + noise


def data(part, parts):
    inputs, targets = rows(parts)
    return [*zip(inputs[part::parts].split(16), targets[part::parts].split(16), strict=True)]


def query(rows):
    inputs, targets = rows
    return inputs.T @ inputs, inputs.T @ targets


def loss(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs).squeeze(1), targets)


def evaluate(model):
    return {"mse": loss(model, rows(1)).item()}


METRICS = {"mse": "lower"}
