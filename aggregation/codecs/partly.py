"""A codec for a part of a vector: the last elements are sent as they are, and a codec encodes those before them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .codec import GatherCodec, HopCodec


def change(before: Tensor, vector: Tensor, exact: int) -> Tensor:
    """The form in which `vector` [n] is encoded, a new tensor [n]: the change of its elements since `before` [n], and
    the values of the last `exact` ones, which are sent as they are."""
    changed, coded = vector - before, vector.numel() - exact
    changed[coded:] = vector[coded:]
    return changed


@dataclass(frozen=True, slots=True)
class Partly:
    """Encodes vectors [n] of `dtype`, all elements but the last `exact` by `codec`. A vector may consist of such
    elements alone."""

    codec: HopCodec | GatherCodec
    exact: int
    dtype: torch.dtype

    def encoded_bytes(self, count: int) -> int:
        """The exact number of bytes of an encoded vector of `count` elements, at least `exact`."""
        coded = count - self.exact
        return (self.codec.encoded_bytes(coded) if coded else 0) + self.exact * self.dtype.itemsize

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """`values` [n] as uint8 [encoded_bytes(n)]. Arguments and errors as in `HopCodec.encode`, but that elements
        sent as they are may have any value."""
        if not self.exact:
            return self.codec.encode(values, seed)
        coded, exact = values[: len(values) - self.exact], values[len(values) - self.exact :]
        plain = exact.view(torch.uint8)
        return torch.cat((self.codec.encode(coded, seed), plain)) if coded.numel() else plain

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The `count` elements of a `payload` that `encode` has made, with the same bits on every peer. Raises
        ValueError as `HopCodec.decode`, and for a payload of another size or a `dtype` other than its own."""
        if dtype != self.dtype or len(payload) != self.encoded_bytes(count):
            raise ValueError(f"{count} elements are {self.encoded_bytes(count)} bytes of {self.dtype}")
        if not self.exact:
            return self.codec.decode(payload, count, dtype)
        plain = len(payload) - self.exact * dtype.itemsize
        exact = payload[plain:].clone().view(dtype)
        return torch.cat((self.codec.decode(payload[:plain], count - self.exact, dtype), exact)) if plain else exact
