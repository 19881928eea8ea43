"""A task with arguments of its own: the width of its layer and its learning rate, as a script parses them."""

import argparse

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--rate", type=float, default=0.1)
options = parser.parse_args()


def model():
    return nn.Sequential(nn.Linear(FEATURES, options.width), nn.Tanh(), nn.Linear(options.width, CLASSES))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=options.rate, momentum=0.9)


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model):
    sgd = run.wrap(optimizer(model.parameters()), model)
    for batch in batches(run.part, run.parts):
        sgd.zero_grad()
        loss(model, batch).backward()
        sgd.step()
    run.leave()
