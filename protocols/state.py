"""What all peers agree on after a committed round, and its form as bytes for a peer that has to catch up.

Bytes: a 4-byte header length, a msgpack header [round, step, period state, number of outer tensors, three numbers
of links, two of speeds], then the vector and the outer step's tensors raw, little-endian, in the layout's dtype. Sizes
come from the local layout, never from the wire.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import msgpack
import numpy as np
import torch
from torch import Tensor

from ..aggregation.agreed import UNKNOWN, LinkCosts
from ..aggregation.normalised import UNKNOWN_SPEEDS, Speeds
from ..aggregation.outer import OuterState
from ..aggregation.periods.policy import PeriodState
from ..aggregation.vector import Layout, all_finite
from .wire import Buffer, PeerMisbehaved

_HEADER_BYTES_MAX = 4096
_MEANS = len(LinkCosts._fields) + len(Speeds._fields)
_COLUMNS = 64
_MIX = np.arange(1, 2 * _COLUMNS, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
"""Odd factors, one a column: a word that moves to another column changes the sum."""


@dataclass(frozen=True, slots=True)
class State:
    """Round number (0 before the first), local steps each peer has taken, the model as one vector, the outer step's
    tensors, the averaging period's state, what the peers' links cost and how fast they are on average. Its tensors are
    never written to: a new round makes new ones."""

    round: int
    step: int
    vector: Tensor
    outer: OuterState
    period: PeriodState
    links: LinkCosts = UNKNOWN
    speeds: Speeds = UNKNOWN_SPEEDS


def fingerprint(vector: Tensor) -> int:
    """63 bits that differ when a bit of `vector` does: 64 column sums of its words, mixed, and a CRC of the rest.

    One pass at memory speed, against accidents only; adversaries are kept out by their keys.
    """
    raw = vector.detach().contiguous().numpy().data.cast("B")
    rows = len(raw) // (8 * _COLUMNS)
    words = np.frombuffer(raw[: rows * 8 * _COLUMNS], dtype=np.uint64).reshape(rows, _COLUMNS)
    sums = words.sum(axis=0, dtype=np.uint64)
    sums = (sums ^ (sums >> np.uint64(32))) * _MIX  # so that high bits, the signs, reach the low ones
    mixed = int((sums ^ (sums >> np.uint64(29))).sum(dtype=np.uint64))
    return (mixed ^ zlib.crc32(raw[rows * 8 * _COLUMNS :])) & (2**63 - 1)


def state_fingerprint(state: State) -> int:
    """63 bits that differ when a bit of the model, or of the outer step's tensors, does."""
    first, *others = (fingerprint(tensor) for tensor in (state.vector, *state.outer))
    for other in others:
        first = (first * 0x9E3779B97F4A7C15 + other) & (2**63 - 1)
    return first


def pack(state: State) -> bytes:
    """The state as bytes, to be fetched in parts."""
    means = (*state.links, *state.speeds)
    header = msgpack.packb([state.round, state.step, state.period.to_plain(), len(state.outer), *means])
    body = [tensor.numpy().tobytes() for tensor in (state.vector, *state.outer)]
    return b"".join([struct.pack("<I", len(header)), header, *body])


def bytes_max(layout: Layout, outer: int) -> int:
    """More than this no honest state of this layout takes, whose outer step has so many tensors."""
    return 4 + _HEADER_BYTES_MAX + layout.nbytes * (1 + outer)


def unpack(blob: Buffer, layout: Layout, outer: int) -> State:
    """Raises PeerMisbehaved when the bytes are no state of `layout` with so many tensors of the outer step."""
    try:
        (length,) = struct.unpack_from("<I", blob)
        if length > _HEADER_BYTES_MAX:
            raise ValueError("its header is too long")
        round_, step, period, has, *means = msgpack.unpackb(bytes(blob[4 : 4 + length]), max_map_len=0, max_ext_len=0)
        if any(type(n) is not int or not 0 <= n < 2**62 for n in (round_, step)):
            raise ValueError("its numbers make no sense")
        if type(has) is not int or has != outer:
            raise ValueError(f"it has not the {outer} tensors of this run's outer step")
        if len(means) != _MEANS or any(type(mean) is not float or not 0 <= mean < math.inf for mean in means):
            raise ValueError("its links and speeds make no sense")
        links, speeds = LinkCosts(*means[: -len(Speeds._fields)]), Speeds(*means[-len(Speeds._fields) :])
        body = memoryview(blob)[4 + length :]
        if len(body) != layout.nbytes * (1 + outer):
            raise ValueError(f"it has {len(body)} bytes of tensors, {layout.nbytes * (1 + outer)} are due")
        tensors = [
            torch.frombuffer(bytearray(body[i * layout.nbytes : (i + 1) * layout.nbytes]), dtype=layout.dtype)
            for i in range(1 + outer)
        ]
        if not all(all_finite(tensor) for tensor in tensors):
            raise ValueError("it holds values that are not finite")
        begun = PeriodState.from_plain(period)
        return State(round_, step, tensors[0], tuple(tensors[1:]), begun, links, speeds)
    except (ValueError, TypeError, struct.error) as error:
        raise PeerMisbehaved(f"not a state of this model: {error}") from None
