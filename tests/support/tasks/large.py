"""A model of 400 kB, with local steps of at least 2 ms, so that a test can reach into a run."""

import time

import torch
from torch import nn


def model():
    return nn.Linear(1000, 100)


def data(part, parts):
    while True:
        yield torch.ones(1, 1000)


def loss(model, batch):
    time.sleep(0.002)
    return model(batch).square().mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-6)
