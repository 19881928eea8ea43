"""One bit an element: its sign, and for all elements together the mean of their magnitudes.

Source: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes" (ICML 2019, arXiv
1901.09847), Algorithm 1 with the scaled sign of equation (2); 1-bit SGD (Seide et al., Interspeech 2014) precedes it.

    paper          here
    p_t            values; with error feedback, the new values plus the residual
    d              n, elements
    |p|_1 / d      scale
    Delta_t        decoded: scale * sign(p); zeros count as positive

Cost: 4 + ceil(n/8) bytes, 32 times fewer than float32.

Effect on the mean: without error feedback it is biased and can stay wrong for ever (section 3 of the paper). With
it, a contraction: ``|Q(p) - p|^2 = (1 - |p|_1^2 / (d |p|_2^2)) |p|^2``, hence nearly no progress for sparse vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .codec import check_count, check_payload, check_rows, check_scales, check_vector, scale_max
from .packing import join, pack, packed_bytes, read, unpack


@dataclass(frozen=True, slots=True)
class Sign:
    """The gather codec of signs. Its payload is a float32 scale, then a bit for each element, 1 where it is
    negative."""

    family: ClassVar[Literal["gather"]] = "gather"
    name: ClassVar[str] = "sign"

    def encoded_bytes(self, count: int) -> int:
        check_count(count)
        return 4 + packed_bytes(count, 1)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        check_vector(values)
        bits, scale = _quantise(values)
        return join(scale, pack(bits, 1))

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        check_payload(payload, self.encoded_bytes(count), dtype)
        scale = read(payload, 0, 1, torch.float32)
        check_scales(scale, 1)
        return _dequantise(unpack(payload[4:], count, 1), scale).to(dtype)

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        """The decoded values of each row of ``values`` [..., n], in its dtype, as in `HopCodec.round_trip`; ``seeds``
        are ignored. They are equal to decoded payloads to the bit only if the sum of magnitudes is: torch may split the
        sum over many rows among threads differently than that of one row."""
        check_rows(values, seeds)
        return _dequantise(*_quantise(values)).to(values.dtype)


def _quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Bits (uint8 [..., n]), 1 where an element is negative, and scales (float32 [..., 1])."""
    scale = values.detach().abs().sum(dim=-1, keepdim=True, dtype=torch.float64) / values.shape[-1]
    return (values < 0).to(torch.uint8), scale.clamp_(max=scale_max(1)).to(torch.float32)


def _dequantise(bits: Tensor, scale: Tensor) -> Tensor:
    return bits.to(torch.float32).mul_(-2).add_(1).mul_(scale)
