"""Mixed precision: float16 by autocast, with a gradient scaler. On a GPU where there is one, else on the CPU, which
computes the same more slowly; a task takes the device of its peer."""

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


def loop(run, model, device="cpu"):
    model.to(device)
    sgd = run.wrap(optimizer(model.parameters()), model)
    scaler = torch.amp.GradScaler(device)
    for inputs, labels in batches(run.part, run.parts):
        sgd.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            value = loss(model, (inputs.to(device), labels.to(device)))
        scaler.scale(value).backward()
        scaler.unscale_(sgd)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(sgd)
        scaler.update()
    run.leave()
