"""Test problems that the papers' scripts share: small, and their losses say what is claimed of them.

- MLP-S: a perceptron 64-32-10 on a stream of samples, always fresh ones: 30 Gaussian clusters, ten classes, a fifth of
  the labels drawn anew, so no loss falls below about 1. With ``skew``, a peer draws so often from classes of its own.
- LOG-H: logistic regression whose peers have different data: each has an optimum of its own, so averaging rarely has a
  floor above the common one. What `evaluate` gives is the distance of the loss to the least.
- Fashion-MNIST: a perceptron 784-64-10, each peer with a part of the images.

`evaluate` gives a loss, lower is better, of the model that all agreed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from samovar.peers.task.task import Task

INPUTS, HIDDEN, CLASSES, CLUSTERS = 64, 32, 10, 30
SPREAD, NOISE, REDRAWN = 0.33, 0.6, 0.2
HELD_OUT, AT_ONCE = 4000, 256
"""Samples to judge by; batches that are drawn at once."""
FEATURES, SCALE = 20, 0.7

Batch = tuple[Tensor, Tensor]
Draw = Callable[[int, torch.Generator], Batch]


class Stream:
    """MLP-S: the same clusters for the same seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = SPREAD * torch.randn(CLUSTERS, INPUTS, generator=self.generator)

    def draw(self, count: int, generator: torch.Generator | None = None, own: int = 0, skew: float = 0.0) -> Batch:
        """So many fresh samples; `skew` of them from the clusters ``own`` modulo 4."""
        chance = generator or self.generator
        cluster = torch.randint(CLUSTERS, (count,), generator=chance)
        if skew:
            owned = torch.tensor([index for index in range(CLUSTERS) if index % CLASSES % 4 == own])
            picked = owned[torch.randint(len(owned), (count,), generator=chance)]
            cluster = torch.where(torch.rand(count, generator=chance) < skew, picked, cluster)
        inputs = self.centres[cluster] + NOISE * torch.randn(count, INPUTS, generator=chance)
        redrawn = torch.rand(count, generator=chance) < REDRAWN
        anything = torch.randint(CLASSES, (count,), generator=chance)
        return inputs, torch.where(redrawn, anything, cluster % CLASSES)


def network(seed: int, inputs: int = INPUTS, hidden: int = HIDDEN) -> nn.Sequential:
    torch.manual_seed(seed)
    first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, CLASSES)
    for layer in (first, last):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.ReLU(), last)


def batches(draw: Draw, size: int, seed: int) -> Iterator[Batch]:
    """Without end, and drawn many at once, as that is much faster."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        inputs, labels = draw(size * AT_ONCE, generator)
        yield from zip(inputs.split(size), labels.split(size), strict=True)


def mlp_s(seed: int, rate: float, *, batch: int = 4, skew: float = 0.0) -> Task:
    stream = Stream(seed)
    held_out = stream.draw(HELD_OUT)

    def data(part: int, parts: int) -> Iterator[Batch]:
        return batches(lambda count, chance: stream.draw(count, chance, part % 4, skew), batch, 1000 * seed + part)

    return _task("MLP-S", lambda: network(seed), data, rate, held_out)


def log_h(seed: int, rate: float, *, peers: int = 4, batch: int = 4) -> Task:
    chance = torch.Generator().manual_seed(seed)
    common = torch.randn(FEATURES, generator=chance)
    optima = common + torch.randn(peers, FEATURES, generator=chance)
    scales = torch.exp(SCALE * torch.randn(FEATURES, generator=chance))
    judged = scales * torch.randn(peers, HELD_OUT, FEATURES, generator=chance)
    right = torch.sigmoid((judged * optima[:, None]).sum(-1))
    least = _least(judged.reshape(-1, FEATURES).double(), right.reshape(-1).double())

    def draw(count: int, generator: torch.Generator, part: int) -> Batch:
        inputs = scales * torch.randn(count, FEATURES, generator=generator)
        return inputs, torch.bernoulli(torch.sigmoid(inputs @ optima[part % peers]), generator=generator)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(model(batch[0])[:, 0], batch[1])

    def evaluate(model: nn.Module) -> float:
        logits = model(judged)[..., 0]
        return nn.functional.binary_cross_entropy_with_logits(logits, right).item() - least

    def model() -> nn.Module:
        linear = nn.Linear(FEATURES, 1, bias=False)
        nn.init.zeros_(linear.weight)
        return linear

    def data(part: int, parts: int) -> Iterator[Batch]:
        return batches(lambda count, chance: draw(count, chance, part), batch, 1000 * seed + part)

    return Task(Path("LOG-H"), model, data, loss, evaluate, lambda parameters: torch.optim.SGD(parameters, lr=rate))


def _least(inputs: Tensor, right: Tensor) -> float:
    """The least loss there is, by Newton's method."""
    weights = torch.zeros(inputs.shape[1], dtype=torch.float64)
    for _ in range(15):
        guess = torch.sigmoid(inputs @ weights)
        slope = inputs.T @ (guess - right) / len(inputs)
        curvature = (inputs * (guess * (1 - guess))[:, None]).T @ inputs / len(inputs)
        weights = weights - torch.linalg.solve(curvature, slope)
    return nn.functional.binary_cross_entropy_with_logits(inputs @ weights, right).item()


def fashion(seed: int, rate: float, loaded: tuple[Tensor, Tensor, Tensor, Tensor], *, batch: int = 16) -> Task:
    images, labels, test_images, test_labels = loaded

    def data(part: int, parts: int) -> Iterator[Batch]:
        chance = torch.Generator().manual_seed(1000 * seed + part)
        mine = torch.arange(part, len(labels), parts)
        while True:
            for chosen in mine[torch.randperm(len(mine), generator=chance)].split(batch):
                yield images[chosen], labels[chosen]

    held_out = (test_images[:HELD_OUT], test_labels[:HELD_OUT])
    return _task("Fashion-MNIST", lambda: network(seed, images.shape[1], 64), data, rate, held_out)


def _task(
    name: str, model: Callable[[], nn.Module], data: Callable[[int, int], Iterator[Batch]], rate: float, held_out: Batch
) -> Task:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def evaluate(model: nn.Module) -> float:
        value = loss(model, held_out).item()
        return value if math.isfinite(value) else math.inf

    return Task(Path(name), model, data, loss, evaluate, lambda parameters: torch.optim.SGD(parameters, lr=rate))
