"""A residual network as torchvision's ResNet is built, with momentum, weight decay and a one-cycle rate."""

import torch
from fashion import data, epochs, evaluate, loss
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

__all__ = ["data", "evaluate", "loss"]


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


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1, self.layer2, self.layer3 = Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = nn.functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.avgpool(x).flatten(1))


def model():
    return ResNet()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)


def lr_schedule(optimizer, steps):
    return OneCycleLR(optimizer, 0.2, total_steps=steps + 1)


def loop(run, model, steps=600):
    sgd = run.wrap(optimizer(model.parameters()), model)
    rates = lr_schedule(sgd, steps)
    for batch in epochs(data(run.part, run.parts, workers=2), steps):
        sgd.zero_grad()
        loss(model, batch).backward()
        sgd.step()
        rates.step()
    run.leave()
