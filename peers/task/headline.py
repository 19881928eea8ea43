"""The headline: the metric of a task by which its models are compared."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.columns import ACCURACY
from .task import Task


@dataclass(frozen=True, slots=True)
class Headline:
    """A metric's name, and whether more of it is better."""

    name: str
    higher: bool

    def better(self, value: float, than: float) -> bool:
        """Whether `value` is better than another one; NaN never is."""
        return value > than if self.higher else value < than


def headline_of(task: Task) -> Headline | None:
    """The headline of `task`; None: it has no `evaluate`."""
    return None if task.evaluate is None else Headline(ACCURACY, higher=True)
