"""Which share of the vector each peer sums up for the others, so that the slowest link is done as early as can be.

Source: Jiang et al., "A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU
clusters" (BytePS, OSDI 2020, section 4.1): k machines without data help n with data, all with one bandwidth. Here
with a bandwidth for each, and peers that own nothing: water-filling, which for one bandwidth gives the paper's numbers.

    paper   here
    n       peers with data: those for which has_data is true
    k       peers without: helpers, which only sum up
    M       bytes of the vector, 1 here: everything is in proportion to it
    B       bandwidths_Bps, a peer's own; a_i is 1 if peer i has data, else 0
    M_i/M   shares: w_i, of the vector, all together 1

In a sharded allreduce (`schedules.sharded`) a peer sends what it has to the owners and what it owns to those with data:
a_i + (n - 2 a_i) w_i vectors, and receives as much. In time T it can own w_i = (T b_i - a_i)/(n - 2 a_i). All must be
owned, so that sum w_i = 1 gives T, but nobody is done before its own vector is sent, T >= a_i/b_i. Where that decides,
shares are cut down in proportion. For n <= 2 a peer with data is never the busier for what it owns: those own all.

`coarse` is what runs go by: what they measure trembles by a factor of two, and to take one of several slow peers for a
fast one costs more than equal parts do.

Cost: none on the wire. b_i is what a link carries each way at once, min(up, down) of full duplex; of half duplex
1/(1/up + 1/down). Loss, lateness and death: a share is a plan for those who are there; the next view has its own.
"""

import math
from collections.abc import Sequence
from statistics import median

_ALIKE = 3
"""Bandwidths within this factor are not told apart."""


def shares(
    bandwidths_Bps: Sequence[float], has_data: Sequence[bool], owns: Sequence[bool] | None = None
) -> tuple[float, ...]:
    """The share of each peer, in [0, 1] and together 1; 0 where ``owns`` (None: all do) is false, as of a client.

    Raises ValueError if nobody may own anything or nobody has data, and on a bandwidth that is not positive and finite.
    """
    owners = [True] * len(bandwidths_Bps) if owns is None else list(owns)
    _check(bandwidths_Bps, has_data, owners)
    peers = list(zip(bandwidths_Bps, map(int, has_data), owners, strict=True))
    count = sum(has_data)
    if count <= 2 and any(data and owner for _, data, owner in peers):
        return _scaled([bandwidth * data * owner for bandwidth, data, owner in peers])
    rates = [bandwidth * owner / (count - 2 * data) if owner else 0.0 for bandwidth, data, owner in peers]
    owed = math.fsum(data / (count - 2 * data) for _, data, owner in peers if owner)
    least_s = max((1 + owed) / math.fsum(rates), *(data / bandwidth for bandwidth, data, _ in peers))
    return _scaled(
        [
            max(0.0, least_s * bandwidth - data) / (count - 2 * data) if owner else 0.0
            for bandwidth, data, owner in peers
        ]
    )


def coarse(bandwidths_Bps: Sequence[float]) -> tuple[float, ...]:
    """Bandwidths as measured, 0 where nothing is known, and that of one at least; as they count: who carries a third
    of what the best does, or more, is taken for one of the best, and the unknown for one in the middle."""
    middle_Bps = median(filter(None, bandwidths_Bps))
    known = [bandwidth or middle_Bps for bandwidth in bandwidths_Bps]
    best = max(known)
    return tuple(best if _ALIKE * bandwidth >= best else bandwidth for bandwidth in known)


def by_bandwidth(bandwidths_Bps: Sequence[float]) -> tuple[float, ...] | None:
    """The shares of peers that all have data; None: as all are alike, so are these."""
    return None if len(set(bandwidths_Bps)) == 1 else shares(bandwidths_Bps, [True] * len(bandwidths_Bps))


def loads(share: Sequence[float], has_data: Sequence[bool]) -> tuple[float, ...]:
    """What each peer sends, and receives as much, in vectors: a_i + (n - 2 a_i) w_i."""
    count = sum(has_data)
    return tuple(data + (count - 2 * data) * part for part, data in zip(share, map(int, has_data), strict=True))


def bottleneck(share: Sequence[float], bandwidths_Bps: Sequence[float], has_data: Sequence[bool]) -> float:
    """How long the slowest peer takes, in seconds for each byte of the vector."""
    busy = zip(loads(share, has_data), bandwidths_Bps, strict=True)
    return max(load / bandwidth for load, bandwidth in busy)


def _check(bandwidths_Bps: Sequence[float], has_data: Sequence[bool], owns: Sequence[bool]) -> None:
    if not len(bandwidths_Bps) == len(has_data) == len(owns):
        lengths = f"{len(bandwidths_Bps)} bandwidths, {len(has_data)} has_data, {len(owns)} owns"
        raise ValueError(f"every peer needs all of its numbers, got {lengths}")
    if not all(0 < bandwidth < math.inf for bandwidth in bandwidths_Bps):
        raise ValueError(f"bandwidths must be positive and finite, got {list(bandwidths_Bps)!r:.200}")
    if not any(has_data) or not any(owns):
        raise ValueError("somebody must have data" if any(owns) else "somebody must own a share")


def _scaled(weights: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)
