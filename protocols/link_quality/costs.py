"""The costs of a peer's links, as the links have measured them in use."""

from __future__ import annotations

from statistics import median

from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ..channel import Channel
from ..transport import PeerId


def measured(channel: Channel, members: tuple[PeerId, ...]) -> LinkCosts:
    """The median costs of the links to the other `members`; unknown before any link has measured them."""
    others = [peer for peer in members if peer != channel.endpoint.id]
    trips_s = [trip_s for peer in others if (trip_s := channel.endpoint.round_trip_s(peer)) is not None]
    rates_Bps = [rate_Bps for peer in others if (rate_Bps := channel.endpoint.bandwidth_Bps(peer))]
    if not trips_s or not rates_Bps:
        return UNKNOWN
    return LinkCosts(median(trips_s) / 2, 1 / median(rates_Bps))
