"""What a peer's links cost, from what they have measured of themselves while they were used."""

from __future__ import annotations

from statistics import median

from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ..channel import Channel
from ..transport import PeerId


def measured(channel: Channel, members: tuple[PeerId, ...]) -> LinkCosts:
    """Of the ways to the other `members`, the median; unknown before any was."""
    others = [peer for peer in members if peer != channel.endpoint.id]
    trips_s = [trip_s for peer in others if (trip_s := channel.endpoint.round_trip_s(peer)) is not None]
    rates_Bps = [rate_Bps for peer in others if (rate_Bps := channel.endpoint.bandwidth_Bps(peer))]
    if not trips_s or not rates_Bps:
        return UNKNOWN
    return LinkCosts(median(trips_s) / 2, 1 / median(rates_Bps))
