"""The costs of a peer's links, as the links have measured them in use."""

from __future__ import annotations

from statistics import median

from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ..channel import Channel
from ..transport import PeerId


def measured(channel: Channel, members: tuple[PeerId, ...]) -> LinkCosts:
    """The median costs of the links to the other `members`; unknown before any link has measured them."""
    me, link_to = channel.endpoint.id, channel.endpoint.links.get
    links = [link for peer in members if peer != me and (link := link_to(peer)) is not None]
    trips_s = [trip_s for link in links if (trip_s := link.round_trip_s) is not None]
    rates_Bps = [rate_Bps for link in links if (rate_Bps := link.bandwidth_Bps)]
    if not trips_s or not rates_Bps:
        return UNKNOWN
    return LinkCosts(median(trips_s) / 2, 1 / median(rates_Bps))
