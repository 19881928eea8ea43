"""Snapshots: the named tensors of one version of a state, and their form as bytes for a peer that fetches them
(`snapshot_transfer`).

Bytes: a 4-byte header length, a msgpack header [version, names, extra], then the raw tensors in the order of `names`,
little-endian. Types and sizes come from the reader's own side, never from the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import torch
from torch import Tensor

from ...aggregation.vector import all_finite
from ..wire.frames import Buffer, PeerMisbehaved

_HEADER_BYTES_MAX = 4096
_VERSION_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a state: one-dimensional tensors by name, and the list `extra`, of data that msgpack can encode,
    without maps: a receiver takes none. The tensors are never written to."""

    version: int
    tensors: Mapping[str, Tensor]
    extra: list[Any]

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor that a snapshot must have: its type and its number of elements."""

    dtype: torch.dtype
    size: int

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def bytes_max(expected: Mapping[str, Expected]) -> int:
    """The most bytes that an honest snapshot of the `expected` tensors takes."""
    return 4 + _HEADER_BYTES_MAX + sum(one.nbytes for one in expected.values())


def pack(snapshot: Snapshot) -> bytes:
    """The snapshot as bytes; its tensors must be on the CPU. Raises ValueError when its names and `extra` take more
    than 4096 bytes."""
    header = msgpack.packb([snapshot.version, [*snapshot.tensors], snapshot.extra])
    if len(header) > _HEADER_BYTES_MAX:
        raise ValueError(f"the header of a snapshot has {len(header)} bytes, at most {_HEADER_BYTES_MAX} are taken")
    body = [tensor.numpy().tobytes() for tensor in snapshot.tensors.values()]
    return b"".join([struct.pack("<I", len(header)), header, *body])


def extra_of(blob: Buffer) -> list[Any]:
    """The `extra` of the snapshot in `blob`, unverified: the caller must check it. Raises PeerMisbehaved when `blob`
    does not begin with the header of a snapshot."""
    try:
        return _header(blob)[2]
    except (ValueError, TypeError, struct.error) as error:
        raise PeerMisbehaved(f"not a snapshot of this run: {error}") from None


def _header(blob: Buffer) -> tuple[int, list[Any], list[Any], memoryview]:
    """The version, the names, `extra`, and the bytes of the tensors."""
    (length,) = struct.unpack_from("<I", blob)
    if length > _HEADER_BYTES_MAX:
        raise ValueError("its header is too long")
    version, names, extra = msgpack.unpackb(bytes(blob[4 : 4 + length]), max_map_len=0, max_ext_len=0)
    if type(version) is not int or not 0 <= version < _VERSION_END or type(extra) is not list:
        raise ValueError("its numbers make no sense")
    return version, names, extra, memoryview(blob)[4 + length :]


def unpack(blob: Buffer, expected: Mapping[str, Expected]) -> Snapshot:
    """The snapshot in `blob`; its tensors are copies. Raises PeerMisbehaved unless it can be read and has exactly the
    `expected` tensors, in this order, all finite. `version` (any number from 0 on) and the items of the list `extra`
    are unverified: the caller must check them."""
    try:
        version, names, extra, body = _header(blob)
        if names != [*expected]:
            raise ValueError(f"it has other tensors than the {len(expected)} of this run")
        due = sum(one.nbytes for one in expected.values())
        if len(body) != due:
            raise ValueError(f"it has {len(body)} bytes of tensors, {due} are due")
        tensors = dict[str, Tensor]()
        for name, one in expected.items():
            tensors[name] = torch.frombuffer(bytearray(body[: one.nbytes]), dtype=one.dtype)
            body = body[one.nbytes :]
        if not all(all_finite(tensor) for tensor in tensors.values()):
            raise ValueError("it holds values that are not finite")
        return Snapshot(version, tensors, extra)
    except (ValueError, TypeError, struct.error) as error:
        raise PeerMisbehaved(f"not a snapshot of this run: {error}") from None
