"""What all have agreed that links cost, and what follows: the schedule they go by, and how long it should take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .cost import Links, choose, predict
from .schedules.schedule import Schedule
from .shares import by_bandwidth

OVERHEAD_S, GAMMA_S_PER_BYTE = 1e-4, 1e-10
"""What a chunk costs its two ends, and to add a byte, on a usual processor."""
CHUNK_BYTES = 64 * 1024
"""As chunks are on a usual link."""
_WORLD_MOST = 16
"""In a larger one to predict takes too long to be done within a round."""


class LinkCosts(NamedTuple):
    """What links cost, summed up over those who know: seconds from end to end, seconds a byte, and the share of those
    who know."""

    alpha_s: float
    s_per_byte: float
    known: float = 1.0

    @property
    def bandwidth_Bps(self) -> float | None:
        """Of a link; None: nobody knows."""
        return self.known / self.s_per_byte if self.known and self.s_per_byte else None


UNKNOWN = LinkCosts(0.0, 0.0, 0.0)


def fastest(
    schedules: Sequence[Schedule],
    costs: LinkCosts,
    world: int,
    size_bytes: int,
    bandwidths_Bps: tuple[float, ...] | None = None,
) -> Schedule:
    """The schedule of least time for links that are all alike, unless each rank's bandwidth is given, by which the
    sharded one then has its parts; but the first of ``schedules`` when no other takes a tenth less, too little is
    known, or the world is too large. Costs count to two binary digits, so that the choice does not change from round to
    round."""
    if not costs.known or world > _WORLD_MOST:
        return schedules[0]
    alpha_s, s_per_byte = _coarse(costs.alpha_s / costs.known), _coarse(costs.s_per_byte / costs.known)
    rates = (1 / s_per_byte,) * world if bandwidths_Bps is None else bandwidths_Bps
    return _fastest(tuple(schedules), alpha_s, rates, size_bytes)


def _coarse(cost: float) -> float:
    return 2.0 ** (round(2 * math.log2(cost)) / 2) if cost > 0 else 0.0


@lru_cache
def _fastest(schedules: tuple[Any, ...], alpha_s: float, rates: tuple[float, ...], size_bytes: int) -> Schedule:
    return choose(schedules, _links(alpha_s, rates), size_bytes, CHUNK_BYTES, by_bandwidth(rates)).steady.schedule


def seconds_of(
    schedule: Schedule,
    costs: LinkCosts,
    world: int,
    size_bytes: int,
    bandwidths_Bps: tuple[float, ...] | None = None,
    shares: tuple[float, ...] | None = None,
) -> float | None:
    """How long an allreduce should take; None where nothing is known. ``bandwidths_Bps`` as above, ``shares`` as for
    `vector.parts`. Cost: linear in the schedule's messages."""
    Bps = costs.bandwidth_Bps
    if Bps is None:
        return None
    links = _links(costs.alpha_s / costs.known, bandwidths_Bps or (Bps,) * world)
    return predict(schedule, links, size_bytes, CHUNK_BYTES, shares)


def _links(alpha_s: float, rates: tuple[float, ...]) -> Links:
    return Links(
        alpha_s=(alpha_s,) * len(rates),
        up_Bps=rates,
        down_Bps=rates,
        gamma_s_per_byte=GAMMA_S_PER_BYTE,
        overhead_s=OVERHEAD_S,
    )
