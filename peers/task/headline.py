"""The headline: the metric of a task by which its models are compared."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.columns import ACCURACY
from ..records.metrics import Scale, scale_of
from .task import Task


@dataclass(frozen=True, slots=True)
class Headline:
    """The name and scale of the metric by which a task's models are compared."""

    name: str
    scale: Scale

    @property
    def higher(self) -> bool:
        """Whether the higher of two values is the better one; False also where the task does not say it."""
        return self.scale.better == "higher"

    def better(self, value: float, than: float) -> bool:
        """Whether `value` is a better value of the metric than `than`. NaN is never better, and any other number is
        better than NaN. False where the task does not say which values are better."""
        return self.scale.improves(value, than)


def headline_of(task: Task) -> Headline | None:
    """The headline of `task`: the first metric that its METRICS declare, else its accuracy; None: it has no
    `evaluate`."""
    if task.evaluate is None:
        return None
    name = next(iter(task.metrics), ACCURACY) if task.metrics else ACCURACY
    return Headline(name, scale_of(name, task.metrics or {}))
