"""A learning-rate schedule: linear warmup, then a cosine."""

import torch
from recipe_data import CLASSES, FEATURES, STEPS, Batch, batches
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR


def model():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def lr_schedule(optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler:
    warmup = steps // 4
    ramp, decay = LinearLR(optimizer, 0.1, total_iters=warmup), CosineAnnealingLR(optimizer, steps - warmup)
    return SequentialLR(optimizer, [ramp, decay], milestones=[warmup])


def data(part, parts):
    return batches(part, parts)


def loss(model: nn.Module, batch: Batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model, steps=STEPS):
    sgd = run.wrap(optimizer(model.parameters()), model)
    rates = lr_schedule(sgd, steps)
    for batch in batches(run.part, run.parts):
        sgd.zero_grad()
        loss(model, batch).backward()
        sgd.step()
        rates.step()
    run.leave()
