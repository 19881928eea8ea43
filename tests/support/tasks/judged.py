"""The task of union.py with an evaluation: nearer to 1, the smaller the loss is on all rows of two peers."""

from torch import nn
from union import data, loss, model, optimizer, table

__all__ = ["data", "evaluate", "loss", "model", "optimizer"]


def evaluate(model):
    inputs, targets = table(2)
    return 1 / (1 + nn.functional.mse_loss(model(inputs), targets).item())
