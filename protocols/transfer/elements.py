"""Elements of tensors as the bytes of a payload, and back, without a copy where the two can share memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..wire.frames import Buffer


def raw(tensors: Sequence[Tensor]) -> Buffer:
    """The elements of these CPU tensors of one dtype, one tensor after another, as bytes. Those of a single contiguous
    tensor are not copied: it must not change any more."""
    whole = tensors[0] if len(tensors) == 1 else torch.cat([one.reshape(-1) for one in tensors] or [torch.empty(0)])
    data = whole.detach().numpy().data
    if not data.contiguous:
        data = whole.detach().contiguous().numpy().data
    return data.cast("B") if data.nbytes else b""


def of_bytes(payload: Buffer, dtype: torch.dtype) -> Tensor:
    """The elements [m] of `dtype` that `raw` wrote. The tensor may share the memory of `payload`, so nobody may write
    into it. Raises ValueError where the bytes are no whole number of elements."""
    if not len(payload):
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(payload) if memoryview(payload).readonly else payload, dtype=dtype)


def copied(payload: Buffer, dtype: torch.dtype) -> Tensor:
    """As `of_bytes`, but in memory of their own. `payload` may begin at any place of another buffer."""
    return torch.frombuffer(bytearray(payload), dtype=dtype) if len(payload) else torch.empty(0, dtype=dtype)
