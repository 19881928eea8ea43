"""The few elements of largest magnitude, by the codec `top_k`; the others wait in the residual.

Source: see `codecs.top_k`. Values are sent as float32, or as what fp16 makes of them, with the same error feedback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..codecs.top_k import TopK
from .filter import Push


@dataclass(frozen=True, slots=True)
class Largest:
    """The filter of the largest elements. `codec`: gives their number and precision."""

    codec: TopK
    forgets: ClassVar[bool] = False

    def passed(self, values: Tensor, push: Push) -> Tensor:
        return self.codec.round_trip(values, (push.seed,)) if values.shape[0] else values
