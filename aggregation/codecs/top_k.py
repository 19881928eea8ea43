"""The few elements of largest magnitude, exactly, with their indices; the rest stays in the error feedback.

Source: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (NeurIPS 2018, arXiv 1809.07599), Algorithm 1 with
top_k of Definition 2.1; Lin et al., "Deep gradient compression" (ICLR 2018, arXiv 1712.01887) for how few suffice.

    paper   here
    d       n, elements
    k       ceil(fraction n)
    m_t     the residual of `ErrorFeedback`

An index is two bytes within a block of 65536, and each block has a count of its elements. Among equal magnitudes at the
threshold torch chooses.

Cost: k (4 + 2) + 4 ceil(n/65536) bytes, k (2 + 2) with values as fp16: for 1 % 66 or 99 times fewer than float32. Every
peer receives as much from every other.

Effect on the mean: without error feedback small elements never arrive. With it, the codec is a contraction, with
``|Q(v) - v|^2 <= (1 - k/n) |v|^2``; an element waits about n/k rounds at worst, so a round's mean contains old values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..vector import all_finite
from .codec import check_count, check_payload, check_rows, check_vector, narrow
from .packing import blocks_in, join, read

BLOCK = 2**16
FRACTION_MIN = 1e-6
PIECE = 2**18
"""Elements whose magnitudes are computed at a time."""
SAMPLED = 64
"""One element in this many is in the sample from which a threshold is estimated."""


@dataclass(frozen=True, slots=True)
class TopK:
    """The gather codec of the largest elements. Its payload is the count of each block (int32), the values, and their
    indices within their blocks (uint16), ascending. Raises ValueError on a ``fraction`` other than 1e-6 to 1."""

    family: ClassVar[Literal["gather"]] = "gather"
    name: ClassVar[str] = "top_k"

    fraction: float = 0.01
    """The share of elements that is sent, from 1e-6 to 1; at least one element is sent."""
    half: bool = False
    """Whether values are sent as fp16. The rounding errors stay in the error feedback."""

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def kept(self, count: int) -> int:
        """The number of elements that are sent of a vector of ``count`` elements: ``fraction * count``, rounded up."""
        return math.ceil(self.fraction * count)

    def encoded_bytes(self, count: int) -> int:
        check_count(count)
        return 4 * blocks_in(count, BLOCK) + self.kept(count) * (self._dtype.itemsize + 2)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        check_vector(values)
        places, chosen = self._select(values)
        of_block = torch.bincount(places // BLOCK, minlength=blocks_in(values.numel(), BLOCK)).to(torch.int32)
        return join(of_block, chosen, (places % BLOCK).to(torch.uint16))

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        check_payload(payload, self.encoded_bytes(count), dtype)
        blocks, kept = blocks_in(count, BLOCK), self.kept(count)
        of_block = read(payload, 0, blocks, torch.int32).to(torch.int64)
        if int(of_block.min()) < 0 or int(of_block.sum()) != kept:
            raise ValueError(f"the blocks of the payload do not have {kept} elements together")
        chosen = read(payload, 4 * blocks, kept, self._dtype).to(dtype)
        if not all_finite(chosen):
            raise ValueError("the payload has numbers that are not finite")
        within = read(payload, 4 * blocks + kept * self._dtype.itemsize, kept, torch.uint16).to(torch.int64)
        starts = torch.arange(0, count, BLOCK, device=payload.device)
        places = starts.repeat_interleave(of_block, output_size=kept) + within
        if int(places[-1]) >= count or bool((places.diff() <= 0).any()):
            raise ValueError(f"the places in the payload do not ascend within {count} elements")
        return _spread(places, chosen, count)

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        check_rows(values, seeds)
        places, chosen = self._select(values)
        return _spread(places, chosen.to(values.dtype), values.shape[-1])

    def _select(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Ascending indices (int64 [..., k]) of the elements of ``values`` [..., n] to send, and the elements as they
        are sent."""
        places = _largest(values.detach(), self.kept(values.shape[-1])).sort().values
        limit = torch.finfo(self._dtype).max
        return places, narrow(values.gather(-1, places)).clamp(-limit, limit).to(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float16 if self.half else torch.float32


def check_fraction(fraction: float) -> None:
    """Raises ValueError unless ``fraction`` is from 1e-6 to 1."""
    if not FRACTION_MIN <= fraction <= 1:
        raise ValueError(f"the fraction of elements to send must be from {FRACTION_MIN:g} to 1, got {fraction}")


def _spread(places: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Vectors [..., count] with ``chosen`` [..., k] at ``places`` [..., k], else 0."""
    return chosen.new_zeros((*chosen.shape[:-1], count)).scatter_(-1, places, chosen)


def _largest(values: Tensor, kept: int) -> Tensor:
    """Indices [..., kept] of the elements of largest magnitude of each row [..., n]. Long rows are searched one by one:
    of these a sample gives a threshold that is safely low, and only elements above it are searched."""
    guess = 2 * kept // SAMPLED
    if 16 <= guess <= blocks_in(values.shape[-1], SAMPLED) // 4:
        found = [_largest_of_row(row, kept, guess) for row in values.reshape(-1, values.shape[-1])]
        return torch.stack(found).view(*values.shape[:-1], kept)
    return torch.topk(values.abs(), kept, sorted=False).indices


def _largest_of_row(values: Tensor, kept: int, guess: int) -> Tensor:
    """Magnitudes are computed piece by piece: those of a whole model would take the memory of another."""
    least = torch.topk(values[::SAMPLED].abs(), guess, sorted=False).values.min()
    pieces = enumerate(values.split(PIECE))
    above = torch.cat([(piece.abs() >= least).nonzero().squeeze(1) + PIECE * number for number, piece in pieces])
    if above.numel() >= kept:
        return above[torch.topk(values[above].abs(), kept, sorted=False).indices]
    return torch.topk(values.abs(), kept, sorted=False).indices
