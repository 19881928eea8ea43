"""Gradual unfreezing: the body has a learning rate of 0 for the first rounds, and then trains with the head."""

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn

ROUNDS, PERIOD = 3, 4


def model():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def optimizer(model):
    head, body = model[2].parameters(), model[0].parameters()
    return torch.optim.SGD([{"params": head, "lr": 0.1}, {"params": body, "lr": 0.0}])


def on_round(record, run):
    if record.version >= ROUNDS:
        run.optimizer.param_groups[1]["lr"] = 0.1


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model):
    sgd = run.wrap(optimizer(model), model)
    for step, batch in enumerate(batches(run.part, run.parts)):
        if step == ROUNDS * PERIOD:
            sgd.param_groups[1]["lr"] = 0.1
        sgd.zero_grad()
        loss(model, batch).backward()
        sgd.step()
    run.leave()
