"""The few elements of largest magnitude, or rows of largest norm, by the codec `top_k`; the others wait in the
residual.

Source: see `codecs.top_k`. Values are sent as float32, or as what fp16 makes of them, with the same error feedback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..codecs.cast import FP16
from ..codecs.codec import check_values
from ..codecs.top_k import TopK
from .filter import Push, where


@dataclass(frozen=True, slots=True)
class Largest:
    """The filter of the largest elements, or rows. `codec`: its fraction of them passes, as float32 or rounded to fp16.
    Raises ValueError on elements that are not finite."""

    codec: TopK
    forgets: ClassVar[bool] = False

    def passed(self, values: Tensor, push: Push) -> Tensor:
        return self.codec.round_trip(values, (push.seed,)) if values.shape[0] else values

    def passed_rows(self, rows: Tensor, push: Push) -> Tensor:
        if not rows.numel():
            return rows
        check_values(rows)
        keeps = torch.zeros(len(rows), dtype=torch.bool)
        keeps[torch.topk(rows.norm(dim=1), self.codec.kept(len(rows)), sorted=False).indices] = True
        return where(keeps, FP16.round_trip(rows, (push.seed,) * len(rows)) if self.codec.half else rows)
