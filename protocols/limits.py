"""Limits: how many peers each mechanism can hold. `samovar plan` and `doctor` report them. Settings with more peers
than a run can have (`PEERS_MAX`, `VIEW_MEMBERS_MAX`) are refused; beyond other limits a run does without the mechanism.
"""

from __future__ import annotations

from typing import NamedTuple

from ..aggregation.schedules.choice import CHOSEN_MEMBERS_MAX as CHOSEN_MEMBERS_MAX

VIEW_MEMBERS_MAX = 1024
"""The most members and learners of one view: one message holds all their keys, names and addresses."""
VIEW_BYTES_MAX = VIEW_MEMBERS_MAX * 208
"""The most bytes of these keys, names and addresses together: 208 for each member or learner on average."""
WHOLE_PEERS_MAX = 128
"""The most founders of a run by SWIM in which each peer knows all others. In a larger run each peer has links to a
few."""
SWIM_PEERS_MAX = 10_000
"""The most peers of a run by SWIM. Nothing grows with their number, but more have not been tried."""
BEYOND_VIEWS = f"--protocol gossip --membership swim has room for {SWIM_PEERS_MAX}"
"""Advice to the user who wants more peers than a view holds."""
PEERS_MAX = max(VIEW_MEMBERS_MAX, SWIM_PEERS_MAX)
"""The most peers of any run."""
MEASURED_MEMBERS_MAX = 64
"""The most members of a view whose votes carry the measured bandwidths of all members."""
SHARED_MEMORY_MEMBERS_MAX = 64
"""The most peers that can share one segment of memory: it has a flag for each."""
ONE_HOP_MEMBERS_MAX = 8
"""The most members that send whole vectors to each other, in one hop. With more it takes too long, even for short
vectors."""


class Limit(NamedTuple):
    """A limit on the number of peers. `members`: the largest number of peers that a mechanism holds. `beyond`: the
    consequence of more peers, as a text."""

    members: int
    beyond: str


LIMITS = (
    Limit(VIEW_MEMBERS_MAX, f"no more are let in: {BEYOND_VIEWS}"),
    Limit(MEASURED_MEMBERS_MAX, "parts are not cut by the peers' bandwidths, and no deadline is set for a round"),
    Limit(SHARED_MEMORY_MEMBERS_MAX, "peers on one machine send vectors instead of sharing memory"),
    Limit(
        CHOSEN_MEMBERS_MAX,
        "--schedule auto always takes the same schedule, and does not compare them on the measured links",
    ),
    Limit(ONE_HOP_MEMBERS_MAX, "short vectors take two hops instead of one"),
)
"""The limits of a run whose members agree on views, the largest first."""


def beyond(members: int) -> list[Limit]:
    """Those of `LIMITS` that `members` peers exceed, the largest first."""
    return [limit for limit in LIMITS if members > limit.members]
