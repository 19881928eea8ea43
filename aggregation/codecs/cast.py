"""Half precision: each number in 2 bytes, rounded to the nearest.

    fp16   11 bits of precision, up to 65504, in steps of 6e-8 below 6e-5
    bf16   8 bits of precision, the range of float32

Numbers beyond the range become the largest finite number. In fp16 numbers below 3e-8 become 0: for small gradients bf16
or int8 is the better choice.

Cost: 2n bytes, half of float32. Effect on the mean: each hop adds a relative error of at most 2**-11 (fp16) or
2**-8 (bf16), as likely up as down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..vector import all_finite
from .codec import check_count, check_payload, check_rows, check_vector
from .packing import read


@dataclass(frozen=True, slots=True)
class Cast:
    """A hop codec that sends every element in ``half``, a floating type of two bytes. Use its instances `FP16` and
    `BF16`."""

    family: ClassVar[Literal["hop"]] = "hop"
    align: ClassVar[int] = 1

    name: str
    half: torch.dtype

    def encoded_bytes(self, count: int) -> int:
        check_count(count)
        return 2 * count

    def encode(self, values: Tensor, seed: int) -> Tensor:
        check_vector(values)
        return self._halved(values).view(torch.uint8)

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        check_payload(payload, self.encoded_bytes(count), dtype)
        values = read(payload, 0, count, self.half).to(dtype)
        if not all_finite(values):
            raise ValueError("the payload has numbers that are not finite")
        return values

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        check_rows(values, seeds)
        return self._halved(values).to(values.dtype)

    def _halved(self, values: Tensor) -> Tensor:
        largest = torch.finfo(self.half).max
        return values.detach().clamp(-largest, largest).to(self.half)


FP16 = Cast("fp16", torch.float16)
BF16 = Cast("bf16", torch.bfloat16)
