"""Significantly modified: an element is sent once its accumulated change is large beside its value.

Source: Li et al., OSDI 2014, section 3.4 ("pushes entries that have changed by more than a threshold since their last
synchronization"); Hsieh et al., "Gaia", NSDI 2017, section 3.2: the threshold is relative to the value.

    passes where |change| > threshold |weight|

Of rows the norms are compared: of the row's change, and of the row. A weight of 0 passes with any change. Small changes
wait in the residual until they add up, so no element is lost, but many are late: with a threshold of 0.01 a value may
be 1 % off for each worker. NaN passes, so that a server refuses it at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .filter import Push, where


@dataclass(frozen=True, slots=True)
class Significant:
    """The filter of significant changes. `threshold`: an element passes if the magnitude of its change, which is the
    element times `Push.rate`, is above this share of the value's, 0 < `threshold` <= 1e6, else ValueError."""

    threshold: float = 0.01
    forgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1e6:
            raise ValueError(f"the threshold is a share above 0, got {self.threshold:g}")

    def passed(self, values: Tensor, push: Push) -> Tensor:
        return where(~((values * push.rate).abs() <= self.threshold * push.weights.abs()), values)

    def passed_rows(self, rows: Tensor, push: Push) -> Tensor:
        return where(~((rows * push.rate).norm(dim=1) <= self.threshold * push.weights.norm(dim=1)), rows)
