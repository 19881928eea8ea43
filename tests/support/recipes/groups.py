"""Parameter groups by name: no weight decay for norms and biases, another learning rate for the head."""

import torch
from recipe_data import CLASSES, FEATURES, batches
from torch import nn


def model():
    body = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.ReLU())
    return nn.Sequential(body, nn.Linear(16, CLASSES))


def optimizer(model):
    named = dict(model.named_parameters())
    head = [tensor for name, tensor in named.items() if name.startswith("1.")]
    plain = [tensor for name, tensor in named.items() if name.startswith("0.") and tensor.dim() < 2]
    decayed = [tensor for name, tensor in named.items() if name.startswith("0.") and tensor.dim() >= 2]
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.1},
            {"params": plain, "weight_decay": 0.0},
            {"params": head, "lr": 0.02},
        ],
        lr=0.01,
    )


def data(part, parts):
    return batches(part, parts)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def loop(run, model):
    adam = run.wrap(optimizer(model), model)
    for batch in batches(run.part, run.parts):
        adam.zero_grad()
        loss(model, batch).backward()
        adam.step()
    run.leave()
