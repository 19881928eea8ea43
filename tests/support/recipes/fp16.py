"""Mixed precision: float16 by autocast, with a gradient scaler."""

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn

precision = "fp16"
clip = 1.0


def model():
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model):
    sgd = run.wrap(optimizer(model.parameters()), model)
    scaler = torch.amp.GradScaler("cpu")
    for batch in batches(run.part, run.parts):
        sgd.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            value = loss(model, batch)
        scaler.scale(value).backward()
        scaler.unscale_(sgd)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(sgd)
        scaler.update()
    run.leave()
