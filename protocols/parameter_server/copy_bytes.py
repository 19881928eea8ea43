"""A copy of a range as bytes, in which it goes from one server to another: its values, and then the tensors of its
server function's state in the order of their names. Names, version and clocks are in the messages' headers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer
from .store import Copy


def packed_copy(copy: Copy, at: int = 0) -> bytes:
    """The bytes of a copy from `at` on, as many as one message takes."""
    found, until = list[Tensor](), at + PAYLOAD_BYTES_MAX
    for begin, tensor in _places(copy):
        found.append(tensor[max(0, at - begin) : max(0, until - begin)])
    return b"".join(part.numpy().tobytes() for part in found)


def nbytes_of(copy: Copy) -> int:
    """The number of bytes of a copy."""
    return sum(len(tensor) for _, tensor in _places(copy))


def fill(copy: Copy, at: int, payload: Buffer) -> int:
    """Write `payload`, the bytes of a copy from `at` on, into `copy`. Returns the number of bytes that are there then:
    `at` + those of `payload`. Raises ValueError when there are more than the copy has, or none although some are
    due."""
    due = nbytes_of(copy)
    if not at + len(payload) <= due or (due and not len(payload)):
        raise ValueError(f"it has {at + len(payload)} bytes, due are {due}")
    bytes_of = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if len(payload) else torch.empty(0)
    for begin, tensor in _places(copy):
        first, last = max(begin, at), min(begin + len(tensor), at + len(payload))
        if first < last:
            tensor[first - begin : last - begin] = bytes_of[first - at : last - at]
    return at + len(payload)


def _places(copy: Copy) -> list[tuple[int, Tensor]]:
    """The tensors of a copy as bytes [b], each with the place of its first byte among all bytes of the copy."""
    found, begin = list[tuple[int, Tensor]](), 0
    for tensor in (copy.values, *(copy.state[name] for name in sorted(copy.state))):
        flat = tensor.reshape(-1).view(torch.uint8)
        found.append((begin, flat))
        begin += len(flat)
    return found
