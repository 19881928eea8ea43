"""The share of the vector that each peer sums for the others, such that the slowest link finishes as early as
possible.

Source: Jiang et al., "A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU
clusters" (BytePS, OSDI 2020, section 4.1): k machines without data help n with data, all with one bandwidth. Here each
peer has its own bandwidth, and peers may own nothing; the solution is water-filling, which for one bandwidth gives the
paper's numbers.

    paper   here
    n       peers with data: those for which has_data is true
    k       peers without: helpers, which only sum up
    M       bytes of the vector, 1 here: everything is in proportion to it
    B       bandwidths_Bps, a peer's own; a_i is 1 if peer i has data, else 0
    M_i/M   shares: w_i, of the vector, all together 1

In a sharded allreduce (`schedules.sharded`) a peer sends its own vector to the owners, and its part to all with data:
a_i + (n - 2 a_i) w_i vectors, and receives as much. In time T it can own w_i = (T b_i - a_i)/(n - 2 a_i). All elements
must be owned, so that sum w_i = 1 gives T; but no peer is done before its own vector is sent, T >= a_i/b_i. Where that
bound is the larger, shares are cut down in proportion. For n <= 2 a peer with data is never busier for the part that it
owns: these peers own all.

Runs use `coarse`: measured bandwidths fluctuate by a factor of two, and mistaking one of several slow peers for a fast
one costs more than equal parts.

Cost: none on the wire. b_i is what a link carries each way at once, min(up, down) of full duplex; of half duplex
1/(1/up + 1/down).
Failures: shares are planned for one view; the next view has its own.
"""

import math
from collections.abc import Sequence
from statistics import median

_ALIKE = 3
"""Bandwidths within this factor count as equal."""


def shares(
    bandwidths_Bps: Sequence[float], has_data: Sequence[bool], owns: Sequence[bool] | None = None
) -> tuple[float, ...]:
    """The share of the vector that each peer should own in a sharded allreduce, in [0, 1], all together 1. A peer whose
    ``owns`` is false, e.g. a client, gets 0 (None: all may own). Raises ValueError if no peer may own anything or none
    has data, and on a bandwidth that is not positive and finite."""
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
    """Measured bandwidths with small differences removed: each peer with at least a third of the best bandwidth gets
    the best one. 0 means unknown; an unknown peer first gets the median of the known ones. Raises ValueError if none is
    known."""
    middle_Bps = median(filter(None, bandwidths_Bps))
    known = [bandwidth or middle_Bps for bandwidth in bandwidths_Bps]
    best = max(known)
    return tuple(best if _ALIKE * bandwidth >= best else bandwidth for bandwidth in known)


def by_bandwidth(bandwidths_Bps: Sequence[float]) -> tuple[float, ...] | None:
    """The shares of peers that all have data and may all own some. None: all bandwidths are equal, and so are the
    shares."""
    return None if len(set(bandwidths_Bps)) == 1 else shares(bandwidths_Bps, [True] * len(bandwidths_Bps))


def loads(share: Sequence[float], has_data: Sequence[bool]) -> tuple[float, ...]:
    """For each peer with this ``share`` w_i, how many times the size of the vector it sends, and also receives, in a
    sharded allreduce: a_i + (n - 2 a_i) w_i, where a_i is 1 if the peer has data, else 0, and n peers have data."""
    count = sum(has_data)
    return tuple(data + (count - 2 * data) * own for own, data in zip(share, map(int, has_data), strict=True))


def bottleneck(share: Sequence[float], bandwidths_Bps: Sequence[float], has_data: Sequence[bool]) -> float:
    """Seconds that the slowest peer is busy in a sharded allreduce, for each byte of the vector. By peer: its ``share``
    of the vector, its bandwidth, and whether it has data (`loads`)."""
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
