"""Gradual unfreezing: the body is frozen for the first steps, and then trains with the head."""

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn

FROZEN_STEPS = 12


def model():
    network = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    network[0].requires_grad_(False)
    return network


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def on_round(record, run):
    if record.step >= FROZEN_STEPS:
        run.model[0].requires_grad_(True)


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model):
    sgd = run.wrap(optimizer(model), model)
    for step, batch in enumerate(batches(run.part, run.parts)):
        if step == FROZEN_STEPS:
            model[0].requires_grad_(True)
        sgd.zero_grad()
        loss(model, batch).backward()
        sgd.step()
    run.leave()
