"""Gradients accumulated over two batches, clipped to a norm, with Adam."""

import contextlib

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn

accumulate = 2
clip = 0.5


def model():
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES))


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model, apart=contextlib.nullcontext):
    adam = run.wrap(optimizer(model.parameters()), model)
    halves = iter(batches(run.part, run.parts))
    for pair in zip(halves, halves, strict=True):
        adam.zero_grad()
        with apart():
            (loss(model, pair[0]) / 2).backward()
        (loss(model, pair[1]) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        adam.step()
    run.leave()
