"""The base class of the rounds of all sketch codecs (`codec.Sketch`). It checks that stages come in order, and it
checks each mean before it is stored. A mean has the shape of the projection [..., k], or [k] if it is common to all
rows.
"""

from abc import ABC, abstractmethod

from torch import Tensor

from ..vector import Layout, all_finite
from .codec import SketchState, check_values


class Stages(ABC):
    """One peer's side of one round: keeps its projection and the peers' mean of each stage. A subclass defines the
    number of ``stages`` and the projection of each (`_projection`). `project` and `absorb` raise ValueError as
    `codec.Sketch` says."""

    stages: int

    def __init__(self) -> None:
        self._projections: list[Tensor] = []
        self._means: list[Tensor] = []

    @abstractmethod
    def _projection(self, stage: int) -> Tensor: ...

    def project(self, stage: int) -> Tensor:
        self._check_order(stage)
        if len(self._projections) == stage:
            self._projections.append(self._projection(stage))
        return self._projections[stage]

    def absorb(self, stage: int, mean: Tensor) -> None:
        own = self.project(stage)
        if mean.shape not in (own.shape, own.shape[-1:]) or mean.dtype != own.dtype or mean.device != own.device:
            got, want = (f"{t.dtype} of shape {tuple(t.shape)} on {t.device}" for t in (mean, own))
            raise ValueError(f"the mean of stage {stage} must be {want}, got {got}")
        if not all_finite(mean):
            raise ValueError(f"the mean of stage {stage} is not finite: somebody's values had diverged")
        self._means.append(mean)

    def _mean(self, stage: int) -> Tensor:
        if len(self._means) <= stage:
            raise ValueError(f"the round is not over: stage {len(self._means)} of {self.stages} comes next")
        return self._means[stage]

    def _check_order(self, stage: int) -> None:
        if not stage == len(self._means) < self.stages:
            due = f"stage {len(self._means)}" if len(self._means) < self.stages else "none"
            raise ValueError(f"the stages of a sketch come in order: {due} is due, got stage {stage}")


def check_round(values: Tensor, layout: Layout, state: SketchState, tensors: int) -> None:
    """Raises ValueError unless the values [..., n] are finite and have the layout's size and dtype, and the state has
    ``tensors`` tensors."""
    check_values(values)
    if values.shape[-1] != layout.size or values.dtype != layout.dtype:
        got, want = f"{values.dtype} of shape {tuple(values.shape)}", f"{layout.dtype} of shape ({layout.size},)"
        raise ValueError(f"the values must be as the layout says, {want}, got {got}")
    if len(state) != tensors:
        raise ValueError(f"this sketch keeps {tensors} tensors of state, got {len(state)}: another codec's?")
