"""A few levels an element, rounded up or down at random, so that the result is unbiased.

Source: Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and encoding" (NeurIPS 2017, arXiv
1610.02132), section 3.1, with the buckets, and the scaling by the maximum, of its experiments.

    paper        here
    s            levels
    d            bucket, elements; each has a norm of its own
    ||v||        scale * levels: what travels is scale = ||v|| / s, for the norm "max" or "l2"
    sgn(v_i) l   q, a whole number from -s to s: floor(v_i / scale + u), u uniform in (0, 1)
    Q_s(v_i)     scale * q

``E Q(v) = v`` (Lemma 3.1; here u has 16 bits, which leaves a bias of at most 2**-17 scales), and
``E|Q(v) - v|^2 <= min(d/s^2, sqrt(d)/s) |v|^2`` with either norm, as the maximum is the smaller one. Where all elements
are about alike it is far less with the maximum: at 7 levels and buckets of 512 normal numbers 0.04 |v|^2, against 1.6.
The 2-norm leaves more zeros, which pays with the paper's Elias coding only: about 2.8 bits an element at s = sqrt(d),
but depending on the values, so that `encoded_bytes` would be a guess. Here a code takes a fixed 2 (s = 1), 4 (s <= 7)
or 8 bits.

Cost: n bits/8 + 4 ceil(n/bucket) bytes; with 7 levels and buckets of 512, 7.9 times fewer than float32.

Effect on the mean: nothing in expectation, so no error feedback is needed. But every hop adds variance, up to the
bound above times the squared norm of the encoded values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .codec import check_count, check_payload, check_rows, check_scales, check_vector, narrow, scale_max
from .packing import blocks_in, join, pack, packed_bytes, read, scale_blocks, to_blocks, unpack

LEVELS_MAX = 127
BUCKET_MAX = 2**20


@dataclass(frozen=True, slots=True)
class QSGD:
    """The hop codec QSGD. Its payload is a float32 scale for each bucket, then the codes q + s, packed. Raises
    ValueError on a field out of range."""

    family: ClassVar[Literal["hop"]] = "hop"
    name: ClassVar[str] = "qsgd"

    levels: int = 7
    """The number of levels s, 1 to 127. A code takes 2, 4 or 8 bits, which 1, 7 and 127 levels fill best."""
    bucket: int = 512
    """The number of elements that share a scale, 1 to 2**20."""
    norm: Literal["max", "l2"] = "max"
    """The norm that the levels divide: a bucket's largest magnitude, or its 2-norm as in the paper's equations."""

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= LEVELS_MAX:
            raise ValueError(f"QSGD takes 1 to {LEVELS_MAX} levels, got {self.levels}")
        if not 1 <= self.bucket <= BUCKET_MAX:
            raise ValueError(f"a bucket of QSGD has 1 to {BUCKET_MAX} elements, got {self.bucket}")
        if self.norm not in ("max", "l2"):
            raise ValueError(f"the norm of QSGD is max or l2, got {self.norm!r:.60}")

    @property
    def align(self) -> int:
        return self.bucket

    @property
    def bits(self) -> int:
        """Bits of one code: 2 for one level, 4 for up to 7, else 8."""
        return 2 if self.levels == 1 else 4 if self.levels <= 7 else 8

    def encoded_bytes(self, count: int) -> int:
        check_count(count)
        return 4 * blocks_in(count, self.bucket) + packed_bytes(count, self.bits)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """Encode ``values`` as `HopCodec.encode` says, rounded up or down at random by ``seed``. The same seed gives
        the same bytes on the same kind of device."""
        check_vector(values)
        codes, scales = self._quantise(narrow(values), self._draw(values, seed))
        return join(scales, pack(codes, self.bits))

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        check_payload(payload, self.encoded_bytes(count), dtype)
        buckets = blocks_in(count, self.bucket)
        scales = read(payload, 0, buckets, torch.float32)
        check_scales(scales, self.levels)
        codes = unpack(payload[4 * buckets :], count, self.bits)
        if int(codes.max()) > 2 * self.levels:
            raise ValueError(f"the payload has levels beyond {self.levels}")
        return self._dequantise(codes, scales).to(dtype)

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        check_rows(values, seeds)
        drawn = torch.stack([self._draw(values, seed) for seed in seeds])
        codes, scales = self._quantise(narrow(values), drawn.view(*values.shape[:-1], -1))
        return self._dequantise(codes, scales).to(values.dtype)

    def _draw(self, values: Tensor, seed: int) -> Tensor:
        """A number for each element of one row, padded to whole buckets."""
        return _uniform(blocks_in(values.shape[-1], self.bucket) * self.bucket, seed, values.device)

    def _quantise(self, values: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Codes q + s (uint8 [..., n]) and scales (float32 [..., buckets]) of values (float32 [..., n]). Overwrites
        ``drawn``."""
        buckets = to_blocks(values, self.bucket)
        scales = (self._norms(buckets) / self.levels).clamp_(max=scale_max(self.levels)).to(torch.float32)
        levels = drawn.view(buckets.shape).addcdiv_(buckets, scales.where(scales > 0, 1)).floor_()
        codes = levels.clamp_(-self.levels, self.levels).add_(self.levels).to(torch.uint8)
        return codes.flatten(-2)[..., : values.shape[-1]], scales.squeeze(-1)

    def _dequantise(self, codes: Tensor, scales: Tensor) -> Tensor:
        return scale_blocks(codes.to(torch.float32).sub_(self.levels), scales, self.bucket)

    def _norms(self, buckets: Tensor) -> Tensor:
        if self.norm == "max":
            return buckets.abs().amax(dim=-1, keepdim=True)
        return buckets.double().square_().sum(dim=-1, keepdim=True).sqrt_()  # squares of float32 are beyond its range


def _uniform(count: int, seed: int, device: torch.device) -> Tensor:
    """``count`` float32 numbers in (0, 1), in steps of 2**-16: a third of the time that full precision takes."""
    generator = torch.Generator(device).manual_seed(seed % 2**63)
    words = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(2**63), None, generator=generator)
    return words.view(torch.int16)[:count].to(torch.float32).add_(2**15 + 0.5).mul_(2**-16)
