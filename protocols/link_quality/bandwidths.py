"""Bandwidths: the bandwidth of each member's connection, as all members have measured it, and the decision when a new
view with these bandwidths is worth its cost. (A view is the agreed list of members; its coordinator counts votes.)

With its vote on a round each member tells the coordinator how fast its links to the others are, as levels of half an
octave. Either end may be the cause of a slow link. So a member's up-link counts as the fastest link from it, its
down-link as the fastest link to it, and the slower of the two is its bandwidth: in a sharded allreduce both carry as
much. Where the parts by these bandwidths (`aggregation.schedules.shares`) make a sum a tenth faster than those of the
present view, the coordinator has a new view decided that contains the bandwidths. So all members cut a vector alike,
and after a crash the next view has the bandwidths too.
Cost: a byte a member in each vote. A new generation each time, after 5 rounds, 10 more, 20 more, because measured
values fluctuate.
On failure: a level that a member has not told in the present view is unknown. The coordinator decides nothing before
all have told theirs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median_low

from ...aggregation.schedules.choice import LinkCosts
from ...aggregation.schedules.shares import bottleneck, by_bandwidth, coarse
from ..channel import Channel
from ..limits import MEASURED_MEMBERS_MAX
from ..members.membership import Membership
from ..members.view import View
from ..testpoints import sometimes
from ..transport import PeerId

_ROUNDS = 5
_BETTER = 0.9

Levels = tuple[int, ...]
"""By rank, the bandwidth of the link to (or from) each member, in half octaves above 1 byte a second; 0: unknown."""
LEVEL_MAX = 127


class Bandwidths:
    """One peer's measured bandwidths, for its votes. Where it is the coordinator, it collects those that all members
    have reported, and has a new view decided that contains them if that makes sums a tenth faster. `size_bytes` returns
    the size of the vector that a round sums, `costs` the agreed link costs."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        size_bytes: Callable[[], int],
        costs: Callable[[], LinkCosts],
    ) -> None:
        self._channel, self._membership, self._size_bytes, self._costs = channel, membership, size_bytes, costs
        self._generation = 0
        self._told: dict[PeerId, deque[Levels]] = {}
        self._counted, self._due = 0, _ROUNDS

    def levels(self) -> Levels:
        """The levels of this peer's links to all members, by rank, to tell the coordinator with a vote; 0: not
        measured, as at its own rank. Empty where there are more than 64 members, too many to measure."""
        ids = self._membership.view.ids
        return (
            tuple(level_of(self._channel.endpoint.bandwidth_Bps(peer)) for peer in ids)
            if len(ids) <= MEASURED_MEMBERS_MAX
            else ()
        )

    def told(self, peer: PeerId, levels: Levels) -> None:
        """For the coordinator: store the levels that the member `peer` has told with its vote; of each member the last
        5 are kept, those of a former view not. Levels that cannot be right (`make_sense`) are ignored."""
        view = self._membership.view
        if self._generation != view.generation:
            self._generation, self._counted = view.generation, 0
            self._told.clear()
        if make_sense(levels, len(view.ids)):
            self._told.setdefault(peer, deque(maxlen=_ROUNDS)).append(levels)

    def consider(self) -> None:
        """For the coordinator, after each round: have a new view with the measured bandwidths decided if sums become a
        tenth faster by it. Looks at that in every fifth round of a view, from the 5th on; each view that it has had
        decided doubles the rounds of the next view that pass first. Does nothing before all members have told their
        levels in the present view, while a member's bandwidth is unknown, or if all are on one machine."""
        view = self._membership.view
        self._counted += 1
        if self._counted < self._due or self._counted % _ROUNDS or view.one_machine or len(self._told) < len(view.ids):
            return
        found = self._found(view)
        if all(found) and self._worth(view, found):
            sometimes("parts by bandwidth")
            self._due *= 2
            self._membership.assess(dict(zip(view.ids, found, strict=True)))

    def _found(self, view: View) -> list[int]:
        """The bandwidth of each member in bytes a second, from the median of the levels told in recent rounds."""
        ways = [tuple(map(median_low, zip(*self._told[peer], strict=True))) for peer in view.ids]
        return [round(in_Bps(level)) for level in slower_ends(ways)]

    def _worth(self, view: View, found: list[int]) -> bool:
        bandwidths, everybody = coarse(found), [True] * len(found)
        alike = (1 / len(found),) * len(found)
        latency_s = 2 * self._costs().alpha_s

        def seconds(shares: tuple[float, ...] | None) -> float:
            return latency_s + self._size_bytes() * bottleneck(shares or alike, bandwidths, everybody)

        return seconds(by_bandwidth(bandwidths)) < _BETTER * seconds(view.group(self._channel.endpoint.id).shares)


def make_sense(levels: Levels, world: int) -> bool:
    """Whether these levels can be those of a member in a view of `world` members: one for each, none above
    `LEVEL_MAX`."""
    return 0 < len(levels) == world and max(levels) <= LEVEL_MAX


def slower_ends(ways: Sequence[Levels]) -> list[int]:
    """The level of each member's connection, in rank order: the lower of its fastest link to others and its fastest
    link from others. `ways`: by sender's rank, the levels to all members. 0: unknown."""
    return [min(ends) for ends in zip(map(max, ways), map(max, zip(*ways, strict=True)), strict=True)]


def in_Bps(level: int) -> float:
    """The bandwidth in bytes a second that a level stands for: 2 to the power of `level` / 2; 0.0 for the level 0,
    unknown."""
    return 2.0 ** (level / 2) if level else 0.0


def level_of(bandwidth_Bps: float | None) -> int:
    """The level, from 1 to `LEVEL_MAX` (127), nearest to a bandwidth in bytes a second (`in_Bps`); 0 for None or 0,
    unknown."""
    return min(LEVEL_MAX, max(1, round(2 * math.log2(bandwidth_Bps)))) if bandwidth_Bps else 0
