"""Eight bits an element: in each block of 1024, multiples of 1/127 of the block's largest magnitude.

Source: Dettmers, "8-bit approximations for parallelism in deep learning" (ICLR 2016, arXiv 1511.04561); blockwise and
by the absolute maximum, as in Dettmers et al., "8-bit optimizers via block-wise quantization" (ICLR 2022, arXiv
2110.02861, section 2.1). Linear steps, rounded to the nearest.

    paper   here
    B       BLOCK
    N_b     scale: max |v| / 127 of block b
    q       code, -127 to 127; the decoded element is q * scale

Cost: n + 4 ceil(n / 1024) bytes, 3.98 times fewer than float32.

Effect on the mean: each hop has an error of at most half a scale, 0.4 % of the block's largest magnitude, up or
down. One huge element blurs its 1023 neighbours and no others. Blocks with nothing above 1e-43 become 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .codec import check_count, check_payload, check_rows, check_scales, check_vector, narrow, scale_max
from .packing import blocks_in, join, read, scale_blocks, to_blocks

BLOCK, LEVELS = 1024, 127


@dataclass(frozen=True, slots=True)
class Int8:
    """The hop codec int8. Its payload is a float32 scale for each block, then an int8 code for each element."""

    family: ClassVar[Literal["hop"]] = "hop"
    name: ClassVar[str] = "int8"
    align: ClassVar[int] = BLOCK

    def encoded_bytes(self, count: int) -> int:
        check_count(count)
        return 4 * blocks_in(count, BLOCK) + count

    def encode(self, values: Tensor, seed: int) -> Tensor:
        check_vector(values)
        codes, scales = _quantise(narrow(values))
        return join(scales, codes)

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        check_payload(payload, self.encoded_bytes(count), dtype)
        blocks = blocks_in(count, BLOCK)
        scales = read(payload, 0, blocks, torch.float32)
        check_scales(scales, LEVELS)
        codes = read(payload, 4 * blocks, count, torch.int8)
        if int(codes.min()) < -LEVELS:
            raise ValueError("the payload has the code -128, which stands for nothing")
        return _dequantise(codes, scales).to(dtype)

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        check_rows(values, seeds)
        return _dequantise(*_quantise(narrow(values))).to(values.dtype)


def _quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (int8 [..., n]) and scales (float32 [..., blocks]) of values (float32 [..., n])."""
    blocks = to_blocks(values, BLOCK)
    scales = (blocks.abs().amax(dim=-1, keepdim=True) / LEVELS).clamp_(max=scale_max(LEVELS))
    codes = (blocks / scales.where(scales > 0, 1)).round_().clamp_(-LEVELS, LEVELS)
    return codes.to(torch.int8).flatten(-2)[..., : values.shape[-1]], scales.squeeze(-1)


def _dequantise(codes: Tensor, scales: Tensor) -> Tensor:
    return scale_blocks(codes.to(torch.float32), scales, BLOCK)
