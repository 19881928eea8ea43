"""Agreed link costs, and the choice of a schedule and the prediction of its time from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .cost import Links, choose, predict
from .schedule import Schedule
from .shares import by_bandwidth

OVERHEAD_S, GAMMA_S_PER_BYTE = 1e-4, 1e-10
"""Costs that are assumed, not measured: the seconds that a chunk costs at each of its two ends, and the seconds to add
a byte."""
CHUNK_BYTES = 64 * 1024
"""The chunk size that predictions assume."""
CHOSEN_MEMBERS_MAX = 16
"""The largest number of ranks for which a schedule is chosen; for more, the predictions would take too long."""


class LinkCosts(NamedTuple):
    """Mean costs of links over all peers, or those of one peer's links (`known` 1 or 0); a peer without measurements
    counts as 0. `alpha_s`: seconds from end to end; `s_per_byte`: seconds a byte; `known`: fraction of peers with
    measurements. To get the mean over these peers alone, divide the other two by `known`, unless it is 0: then no peer
    has any."""

    alpha_s: float
    s_per_byte: float
    known: float = 1.0

    @property
    def bandwidth_Bps(self) -> float | None:
        """Bytes a second of a mean link, over the peers with measurements. None: no peer has any, or `s_per_byte` is
        0."""
        return self.known / self.s_per_byte if self.known and self.s_per_byte else None


UNKNOWN = LinkCosts(0.0, 0.0, 0.0)


def fastest(
    schedules: Sequence[Schedule],
    costs: LinkCosts,
    world: int,
    size_bytes: int,
    bandwidths_Bps: tuple[float, ...] | None = None,
) -> Schedule:
    """The schedule with the least predicted time, for a vector of ``size_bytes`` among ``world`` ranks. All links are
    equal, with the measured ``costs``, unless each rank's ``bandwidths_Bps`` are given; by these the sharded schedule
    then also sizes its parts.

    The first of ``schedules`` is returned unless another takes a tenth less time, and where no costs are known or the
    world is larger than `CHOSEN_MEMBERS_MAX`. Costs are rounded to powers of the square root of 2, so that the choice
    does not change from round to round."""
    if costs.bandwidth_Bps is None or world > CHOSEN_MEMBERS_MAX:
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
    """Predicted seconds of an allreduce of ``size_bytes`` by ``schedule``; None: no costs are known.
    ``bandwidths_Bps``: by rank, bytes a second each way; None: all have the mean of ``costs``. ``shares``: relative
    sizes of the vector's parts; None: equal. Cost: linear in the schedule's messages."""
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
