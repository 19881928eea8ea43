"""KKT: with l1 regularization, a small gradient of a weight that is 0 is not sent, because it would stay 0.

Source: Li et al., OSDI 2014, section 5.1. By the Karush-Kuhn-Tucker conditions of min loss(w) + lambda |w|_1, a weight
stays 0 where the gradient of the loss is within lambda. A worker knows only its own gradient g_k, and takes it for an
estimate.

    passes where w_k != 0 or |g_k| > threshold

What does not pass is forgotten: the same gradient comes again at the next step, and small ones must not add up to a
large one. A row passes if one of its elements does. It is for a server function that takes gradients and shrinks values
towards 0, which the task file defines. NaN passes, so that a server refuses it at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .filter import Push, where


@dataclass(frozen=True, slots=True)
class KKT:
    """The KKT filter: elements of weights that are not 0 pass. `threshold`: an element of a weight that is 0 passes if
    its gradient's magnitude is above this, 0 < `threshold` <= 1e6, else ValueError; the paper takes lambda or a little
    less."""

    threshold: float = 0.001
    forgets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1e6:
            raise ValueError(f"the threshold of a gradient is above 0, got {self.threshold:g}")

    def passed(self, values: Tensor, push: Push) -> Tensor:
        return where(self._marks(values, push), values)

    def passed_rows(self, rows: Tensor, push: Push) -> Tensor:
        return where(self._marks(rows, push).any(dim=1), rows)

    def _marks(self, values: Tensor, push: Push) -> Tensor:
        return (push.weights != 0) | ~(values.abs() <= self.threshold)
