"""What a peer's links cost, from what they have measured of themselves while they were used."""

from __future__ import annotations

from statistics import median

from ..aggregation.agreed import UNKNOWN, LinkCosts
from .endpoint import Endpoint
from .transport import PeerId


def measured(endpoint: Endpoint, members: tuple[PeerId, ...]) -> LinkCosts:
    """Of the ways to the other `members`, the median; unknown before any was."""
    others = [peer for peer in members if peer != endpoint.id]
    trips_s = [trip_s for peer in others if (trip_s := endpoint.round_trip_s(peer)) is not None]
    rates_Bps = [rate_Bps for peer in others if (rate_Bps := endpoint.bandwidth_Bps(peer))]
    if not trips_s or not rates_Bps:
        return UNKNOWN
    return LinkCosts(median(trips_s) / 2, 1 / median(rates_Bps))
