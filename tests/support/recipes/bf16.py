"""Mixed precision: bfloat16 by autocast, weights in float32."""

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn

precision = "bf16"


def model():
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model):
    adam = run.wrap(optimizer(model.parameters()), model)
    for batch in batches(run.part, run.parts):
        adam.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model, batch)
        value.backward()
        adam.step()
    run.leave()
