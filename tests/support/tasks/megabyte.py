"""A model of a megabyte that takes no time to train: for slow ways."""

import torch
from torch import nn


def model():
    return nn.Linear(512, 512)


def data(part, parts):
    return [torch.full((2, 512), float(part + 1))]


def loss(model, batch):
    return model(batch).square().mean()
