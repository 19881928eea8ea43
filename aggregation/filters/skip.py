"""Random skip: each element, or each row of a table, is kept back with a given probability.

Source: Li et al., OSDI 2014, section 5.1 (the random skip filter subsamples entries before they are sent). Here what is
skipped waits in the residual, so the sum of pushes is not biased: an element waits 1 / (1 - probability) pushes in the
mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .filter import Push, where


@dataclass(frozen=True, slots=True)
class Skip:
    """The filter that keeps elements back at random. `probability`: that of each element, or of each row, to be kept
    back, from 0 to below 1, else ValueError."""

    probability: float = 0.5
    forgets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 1:
            raise ValueError(f"the probability is from 0 to below 1, got {self.probability:g}")

    def passed(self, values: Tensor, push: Push) -> Tensor:
        chance = torch.Generator().manual_seed(push.seed)
        return where(torch.rand(len(values), generator=chance) >= self.probability, values)

    def passed_rows(self, rows: Tensor, push: Push) -> Tensor:
        return self.passed(rows, push)
