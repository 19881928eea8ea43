"""An exponential moving average of the weights, taken once a round by on_round, and judged by evaluate."""

import copy

import torch
from recipe_data import CLASSES, FEATURES, batches, table
from torch import nn

DECAY = 0.8
averages = {}  # of each peer by its name: in a simulation all peers share this module


def model():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def setup(run):
    averages[run.name] = copy.deepcopy(run.model)


def on_round(record, run):
    mix(averages[run.name], run.model)


def mix(average, now):
    with torch.no_grad():
        for mean, tensor in zip(average.parameters(), now.parameters(), strict=True):
            mean.lerp_(tensor, 1 - DECAY)


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def evaluate(model):
    inputs, labels = table()
    return (model(inputs).argmax(1) == labels).float().mean()


def loop(run, model, period=4):
    sgd = run.wrap(optimizer(model.parameters()), model)
    average = copy.deepcopy(model)
    for step, batch in enumerate(batches(run.part, run.parts), 1):
        sgd.zero_grad()
        loss(model, batch).backward()
        sgd.step()
        if step % period == 0:
            mix(average, model)
    run.leave()
    return average
