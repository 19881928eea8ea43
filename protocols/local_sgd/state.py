"""The agreed state after a committed round, and its form as a snapshot, which a peer that catches up fetches."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ...aggregation.fednova import UNKNOWN_SPEEDS, Speeds
from ...aggregation.growth import from_bits
from ...aggregation.outer import OuterState
from ...aggregation.periods.policy import PeriodState
from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ...aggregation.vector import Layout
from ..transfer.snapshot import Expected, Snapshot
from ..wire.frames import PeerMisbehaved
from .ends import Counts, counts_of

_MEANS = len(LinkCosts._fields) + len(Speeds._fields)
_COLUMNS = 64
_MIX = np.arange(1, 2 * _COLUMNS, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
"""Odd factors, one per column: a word that moves to another column changes the sum."""


@dataclass(frozen=True, slots=True)
class State:
    """The agreed state after a round. `round`: number of that round, 0 before the first; `step`: local steps that each
    peer has taken; `vector` [n]: the model; `outer`: the outer step's tensors [n]; `period`: the period policy's state;
    `links`, `speeds`: means of link costs and peers' speeds; `counts`: the counts by which the run may end, None: it
    ends by its steps alone, or not at all; `grown`: the parameters in the vector that were frozen when the run began,
    in the model's order (`growth`). Its tensors are never written to: a new round makes new ones."""

    round: int
    step: int
    vector: Tensor
    outer: OuterState
    period: PeriodState
    links: LinkCosts = UNKNOWN
    speeds: Speeds = UNKNOWN_SPEEDS
    counts: Counts | None = None
    grown: tuple[str, ...] = ()


def fingerprint(vector: Tensor) -> int:
    """63 bits that differ when a bit of `vector` does, in all but one of 2**63 cases or so: 64 column sums of its
    words, mixed, and a CRC of the remainder. `vector` is on the CPU. It takes one pass at memory speed. It detects
    accidents only; links are encrypted against adversaries."""
    raw = vector.detach().contiguous().numpy().data.cast("B")
    rows = len(raw) // (8 * _COLUMNS)
    words = np.frombuffer(raw[: rows * 8 * _COLUMNS], dtype=np.uint64).reshape(rows, _COLUMNS)
    sums = words.sum(axis=0, dtype=np.uint64)
    sums = (sums ^ (sums >> np.uint64(32))) * _MIX  # so that high bits, the signs, reach the low ones
    mixed = int((sums ^ (sums >> np.uint64(29))).sum(dtype=np.uint64))
    return (mixed ^ zlib.crc32(raw[rows * 8 * _COLUMNS :])) & (2**63 - 1)


def state_fingerprint(state: State) -> int:
    """63 bits that identify the state: they differ when a bit of the model or of the outer step's tensors does, or the
    name of an unfrozen parameter. They detect accidents only, as `fingerprint`."""
    first, *others = (fingerprint(tensor) for tensor in (state.vector, *state.outer))
    if state.grown:
        others.append(zlib.crc32("\n".join(state.grown).encode()))
    for other in others:
        first = (first * 0x9E3779B97F4A7C15 + other) & (2**63 - 1)
    return first


def to_snapshot(state: State, grown: bytes = b"") -> Snapshot:
    """The state as a snapshot that other peers can fetch. `grown`: `State.grown` as bits
    (`aggregation.growth.to_bits`)."""
    tensors = dict(zip(_names(len(state.outer)), (state.vector, *state.outer), strict=True))
    numbers = [state.step, state.period.to_plain(), *state.links, *state.speeds, *(state.counts or ())]
    return Snapshot(state.round, tensors, [*numbers, grown] if grown else numbers)


def grown_in(extra: list[Any], layout: Layout) -> tuple[str, ...]:
    """The names of the unfrozen parameters of a state, from the numbers `extra` of its snapshot. `layout`: that with
    which the run began. Raises PeerMisbehaved when they name a parameter that the model does not have."""
    try:
        return from_bits(layout, extra[-1]) if extra and type(extra[-1]) is bytes else ()
    except ValueError as error:
        raise PeerMisbehaved(f"not a state of this run: {error}") from None


def expected(layout: Layout, outer: int) -> dict[str, Expected]:
    """The tensors [n] that the snapshot of a state with this layout must have, by name: the model, and as many others
    as the outer step has (`outer`). All have the layout's type and size."""
    return {name: Expected(layout.dtype, layout.size) for name in _names(outer)}


def from_snapshot(snapshot: Snapshot, grown: tuple[str, ...] = ()) -> State:
    """The state in `snapshot`. `grown`: the names that `grown_in` found. Raises PeerMisbehaved when the numbers beside
    its tensors are not as many, or not of the types and ranges, that a state has."""
    try:
        step, period, *others = snapshot.extra[:-1] if grown else snapshot.extra
        means, counts = others[:_MEANS], counts_of(others[_MEANS:])
        if type(step) is not int or not 0 <= step < 2**62:
            raise ValueError("its number of steps makes no sense")
        if len(means) != _MEANS or any(type(mean) is not float or not 0 <= mean < math.inf for mean in means):
            raise ValueError("its links and speeds make no sense")
        links, speeds = LinkCosts(*means[: -len(Speeds._fields)]), Speeds(*means[-len(Speeds._fields) :])
        vector, *outer = snapshot.tensors.values()
        agreed = PeriodState.from_plain(period)
        return State(snapshot.version, step, vector, tuple(outer), agreed, links, speeds, counts, grown)
    except (ValueError, TypeError) as error:
        raise PeerMisbehaved(f"not a state of this run: {error}") from None


def _names(outer: int) -> list[str]:
    return ["model", *(f"outer.{index}" for index in range(outer))]
