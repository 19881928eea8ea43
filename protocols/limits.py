"""Limits: how many peers each way of working together holds. `samovar plan` and `doctor` tell them, settings refuse."""

from __future__ import annotations

from typing import NamedTuple

from ..aggregation.schedules.choice import CHOSEN_MEMBERS_MAX as CHOSEN_MEMBERS_MAX

VIEW_MEMBERS_MAX = 1024
"""Members and learners of one view, which one message has to hold, with all their keys, names and addresses."""
VIEW_BYTES_MAX = VIEW_MEMBERS_MAX * 208
"""Of all their keys, names and addresses together: so much each, or a few that are longer."""
MEASURED_MEMBERS_MAX = 64
"""In a larger view what each tells of its links is too much to tell with every vote, and to look at."""
SHARED_MEMORY_MEMBERS_MAX = 64
"""Each has its flags in a segment."""
ONE_HOP_MEMBERS_MAX = 8
"""With more, everybody's vector to everybody is too much to send, however short it is."""


class Limit(NamedTuple):
    """`beyond`: what is different with more peers than that."""

    members: int
    beyond: str


LIMITS = (
    Limit(VIEW_MEMBERS_MAX, "no more peers are let in"),
    Limit(MEASURED_MEMBERS_MAX, "parts are not cut by the peers' bandwidths, and no deadline is set for a round"),
    Limit(SHARED_MEMORY_MEMBERS_MAX, "peers on one machine send vectors instead of sharing memory"),
    Limit(CHOSEN_MEMBERS_MAX, "the schedule is not chosen by what links cost"),
    Limit(ONE_HOP_MEMBERS_MAX, "short vectors take two hops instead of one"),
)
"""The largest first."""


def beyond(members: int) -> list[Limit]:
    """Those that so many peers exceed."""
    return [limit for limit in LIMITS if members > limit.members]
