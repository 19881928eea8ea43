"""Consensus in a simulation: how far the peers' own models are from their mean, and how good the mean is.

In gossip no peer has the mean of all models, but the simulated world has all models at hand. They are compared about
once in each round, when as many models have changed as there are peers, and the mean is evaluated as often as a peer
evaluates its own model. This has no effect on the peers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from statistics import median_low

import torch

from ..peers.errors import EvaluationFailed
from ..peers.records.consensus import Consensus
from ..protocols.testpoints import Became
from .world.event_log import Gone, peer_of
from .world.world import World

_MOST = 1000
"""The most points of a run. When there are more, every second one is dropped, and further ones are half as frequent."""


class Observed:
    """Compares the models of the peers of `world` whenever enough of them have changed, and appends the outcome to
    `points`, with virtual times."""

    def __init__(self, world: World) -> None:
        self.points: list[Consensus] = []
        self._world, self._models, self._changed, self._every = world, dict[str, Became](), 0, 1
        self._evaluated = 0
        world.log.observers.append(self._heard)

    def end(self, time_s: float) -> None:
        """Append a last point, with the metrics of the mean model, at `time_s`, the virtual time at which the run was
        over. Nothing if no peer had a model of its own."""
        if self._models:
            self._add(time_s, last=True)

    def _heard(self, life: str, event: object) -> None:
        if isinstance(event, Became):
            self._models[peer_of(life)] = event
            self._changed += 1
            there = len(self._models) if self.points else self._world.scenario.settings.peers
            if self._changed >= self._every * there and self._models:
                self._add(asyncio.get_running_loop().time())
        elif isinstance(event, Gone) and not event.finished:
            self._models.pop(peer_of(life), None)

    def _add(self, time_s: float, *, last: bool = False) -> None:
        self._changed = 0
        models = [one.vector for one in self._models.values()]
        mean = torch.zeros_like(models[0], dtype=torch.float64)
        for model in models:
            mean += model
        mean /= len(models)
        squares = math.fsum(float((model - mean).square().sum()) for model in models)
        norm = max(float(mean.norm()), torch.finfo(torch.float32).tiny)
        version = median_low([one.version for one in self._models.values()])
        every = self._world.scenario.settings.evaluate_every
        due = last or version // every > self._evaluated
        metrics = self._metrics(mean.to(models[0].dtype)) if due else {}
        distance = math.sqrt(squares / len(models)) / norm
        self.points.append(
            Consensus(time_s=time_s, version=version, peers=len(models), distance=distance, metrics=metrics)
        )
        self._evaluated = max(self._evaluated, version // every)
        if len(self.points) > _MOST:
            self.points, self._every = self.points[::2], 2 * self._every

    def _metrics(self, mean: torch.Tensor) -> Mapping[str, float]:
        """Metrics of the model `mean` [n], evaluated by any peer's trainer, whose training is not affected; empty if
        that fails."""
        try:
            return self._world.lives[-1].trainer.evaluate(mean)
        except EvaluationFailed:
            return {}
