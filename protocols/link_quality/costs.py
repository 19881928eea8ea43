"""The costs of a peer's links, as the links have measured them in use."""

from __future__ import annotations

from statistics import median

from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ..channel import Channel
from ..transport import PeerId


def measured(channel: Channel, members: tuple[PeerId, ...]) -> LinkCosts:
    """The costs of this peer's links to the other `members`: half the median round trip in seconds, and the seconds a
    byte at the median bandwidth, each over the links that have measured it. `UNKNOWN` until at least one link has
    measured a round trip and one a bandwidth."""
    me, link_to = channel.endpoint.id, channel.endpoint.links.get
    links = [link for peer in members if peer != me and (link := link_to(peer)) is not None]
    trips_s = [trip_s for link in links if (trip_s := link.round_trip_s) is not None]
    rates_Bps = [rate_Bps for link in links if (rate_Bps := link.bandwidth_Bps)]
    if not trips_s or not rates_Bps:
        return UNKNOWN
    return LinkCosts(median(trips_s) / 2, 1 / median(rates_Bps))
