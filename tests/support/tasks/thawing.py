"""The regression of `union`, whose first layer is frozen for the first steps."""

import torch
from torch import nn
from union import data, loss  # noqa: F401

FROZEN_STEPS = 9


def model():
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    network[0].requires_grad_(False)
    return network


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def on_round(record, run):
    if record.step >= FROZEN_STEPS:
        run.model[0].requires_grad_(True)
