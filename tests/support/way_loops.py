"""The loops by which a way to train is tried in scripts: those of its recipe, else those of `loops`."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import torch
from loops import STEPS, batch_loss, first_model, network, scheduled, weights
from torch import Tensor, nn
from ways import Way

import samovar


class RecipeLoop:
    """The loop of a way's recipe, on a model of its own, which is made in this thread. Returns the weights. `steps`:
    those of its optimizer; a gradient scaler leaves some out."""

    def __init__(self, way: Way) -> None:
        task = way.load()
        self._module, self._model, self.steps = sys.modules[task.model.__module__], first_model(task), 0

    def __call__(self, run: Any) -> Tensor:
        torch.manual_seed(3)
        self._run = run
        self._module.loop(self, self._model)
        return weights(self._model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        optimizer.register_step_post_hook(lambda *_: self._count())
        return self._run.wrap(optimizer, model)

    def _count(self) -> None:
        self.steps += 1


class UsualLoop:
    """That of `loops`, with a schedule. Returns everything that it has trained, as one vector."""

    steps = STEPS

    def __call__(self, run: Any) -> Tensor:
        return torch.cat([one.flatten() for one in scheduled(run)])


def whole_loop(way: Way) -> RecipeLoop | UsualLoop:
    """A loop to its end."""
    return RecipeLoop(way) if way.recipe else UsualLoop()


class SomeSteps:
    """Three steps of a loop that does not get far, on a model that is made in this thread."""

    def __init__(self, way: Way) -> None:
        self._task = way.load() if way.recipe else None
        self._model = network() if self._task is None else first_model(self._task)

    def __call__(self, run: samovar.Run) -> None:
        model, task = self._model, self._task
        usual = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1, momentum=0.9)
        optimizer = run.wrap(usual if task is None else task.optimizer_of(model), model)
        batches = range(3) if task is None else islice(task.data(run.part, run.parts), 3)
        for batch in batches:
            optimizer.zero_grad()
            (batch_loss(model, batch) if task is None else task.loss(model, batch)).backward()
            optimizer.step()
