"""The model and the optimizer of a user's own loop: their contribution to a round, and the load of its result."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

from ...aggregation.periods.displacement import Probe
from ...aggregation.periods.policy import STILL
from ...aggregation.scaffold import ControlVariate
from ...aggregation.vector import Part
from ...protocols.local_sgd.filling import Filling
from ...protocols.local_sgd.local_sgd import Contribution
from ..task.averaged import Averaged
from ..task.optimizer_state import InnerState
from ..task.tensors import check_values, merged
from ..training.trainer import finite

Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


class Losses:
    """The losses that the loop reports, batch by batch. `mean`: of the present or the last round; nan: none was
    reported."""

    def __init__(self) -> None:
        self.mean = math.nan
        self._sum: float | torch.Tensor = 0.0
        self._count = 0

    def add(self, loss: float | torch.Tensor) -> None:
        self._sum = self._sum + (loss.detach().float() if isinstance(loss, torch.Tensor) else float(loss))
        self._count += 1

    def close(self) -> float:
        """End the round and return its mean loss; 0 when none was ever reported."""
        if self._count and math.isfinite(mean := float(self._sum) / self._count):
            self.mean = mean
        self._sum, self._count = 0.0, 0
        return 0.0 if math.isnan(self.mean) else self.mean


class Wrapped:
    """`gradients`: the gradients are averaged in place of the model; `inner`: the optimizer's own state is kept, reset,
    or averaged with the model."""

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module, *, gradients: bool, inner: str) -> None:
        """Raises ValueError for a model or optimizer that cannot be averaged."""
        self._optimizer, self._inner = optimizer, inner
        check_values(model)
        self._averaged = Averaged(
            model, InnerState(optimizer, model) if inner == "averaged" else None, gradients=gradients
        )
        self.layout, self.agreement = self._averaged.layout, self._averaged.agreement()
        self.probe: Probe | None = None
        """Measures how far the model moves, where the period policy asks for it."""
        self.variate: ControlVariate | None = None
        """Corrects each local step for drift (SCAFFOLD), where that is set."""

    @property
    def parameters(self) -> int:
        """How many elements of the vector are parameters."""
        return self._averaged.parameters

    def contribution(
        self, weight: float, *, loss: float, elapsed_s: float, filling: Filling | None = None, steps: int = 0
    ) -> Contribution:
        """The contribution: the model after `steps`, or the gradients that `filling` receives. Raises Diverged."""
        rate = float(self._optimizer.param_groups[0]["lr"])
        whole = finite(self._vector(), self.layout, rate) if filling is None else filling.vector
        motion = STILL if self.probe is None else self.probe.end(whole)
        if self.variate is not None:
            whole = self.variate.without(whole)
        return Contribution(whole, weight, loss, rate, elapsed_s, filling, motion, steps=steps)

    def stepped(self, *, halfway: bool) -> None:
        """To be called after each local step. `halfway`: half of the round's steps are taken."""
        if self.variate is not None:
            self.variate.step(self._averaged.trained())
        if halfway and self.probe is not None:
            self.probe.amid(self._vector())

    def load(self, vector: torch.Tensor | None) -> None:
        """Load the result of a round. None: the result is this peer's own contribution."""
        if vector is not None:
            self.take_over(vector)
            if self.probe is not None:
                self.probe.begin(vector)
        if self._inner == "reset":
            self._optimizer.state.clear()

    def merge(self, agreed: torch.Tensor, brought: torch.Tensor, part: Part, overlap_share: float | None) -> None:
        """Merge the `part` that a background round has averaged, with `brought` as this peer's contribution to it: see
        `overlap`."""
        self.take_over(merged(self._vector(), agreed, brought, part, self.parameters, overlap_share))

    def take_over(self, vector: torch.Tensor) -> None:
        """Load `vector` into the model amid a round."""
        self._averaged.load(vector)

    def _vector(self) -> torch.Tensor:
        return self._averaged.vector()
