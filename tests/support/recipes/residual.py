"""A small residual network with BatchNorm on 8 x 8 digits, with momentum, weight decay and a one-cycle rate."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32


def images(held_out):
    digits = load_digits()
    inputs = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    chosen = (torch.arange(len(inputs)) % 4 == 0) == held_out
    return TensorDataset(inputs[chosen], torch.tensor(digits.target)[chosen])


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.short = nn.Conv2d(width, out, 1, stride, bias=False) if stride > 1 or width != out else nn.Identity()

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.short(x))


def model():
    stem = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    return nn.Sequential(
        stem, Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)


def lr_schedule(optimizer, steps):
    return OneCycleLR(optimizer, 0.2, total_steps=steps + 1)


def data(part, parts):
    everything = images(held_out=False)
    mine = torch.utils.data.Subset(everything, range(part, len(everything), parts))
    return DataLoader(mine, batch_size=BATCH, shuffle=True)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def evaluate(model):
    inputs, labels = images(held_out=True).tensors
    return (model(inputs).argmax(1) == labels).float().mean()
