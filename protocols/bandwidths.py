"""Bandwidths: what each member's connection carries, as all have measured it, and when that is worth a new view.

With its vote on a round each tells the coordinator how fast the ways from it are. One that is slow may be so for either
end, so a member's way up counts as the fastest that goes out from it, its way down as the fastest that comes in, and
the slower of these two is its bandwidth: both carry as much in a sharded allreduce. Where the parts that follow from
that (`aggregation.shares`) are a tenth faster than those of the present view, the coordinator has a new one decided
that knows them: so all cut alike, and on a crash the next view has them too.
Cost: a byte a member in each vote. A generation each time, after 5 rounds, 10 more, 20 more: measured values tremble.
On loss: what was not told, or by a member of the view before, is not known, and nothing is changed for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import median_low

from ..aggregation.cost import LinkCosts
from ..aggregation.shares import bottleneck, by_bandwidth, coarse
from .endpoint import Endpoint
from .members.membership import Membership
from .members.view import View
from .transport import PeerId
from .witness import sometimes

_ROUNDS = 5
_BETTER = 0.9
_WORLD_MOST = 64
"""In a larger one this would be too much to tell with every vote, and to look at."""

Levels = tuple[int, ...]
"""Of each member in rank order, what the way to it carries, in half octaves above 1 byte a second; 0: not known."""
LEVEL_MAX = 127


class Bandwidths:
    """One peer's part in it. `size_bytes`: what is summed up in a round; `costs`: what links cost, as agreed."""

    def __init__(
        self, endpoint: Endpoint, membership: Membership, size_bytes: int, costs: Callable[[], LinkCosts]
    ) -> None:
        self._endpoint, self._membership, self._size_bytes, self._costs = endpoint, membership, size_bytes, costs
        self._generation = 0
        self._told: dict[PeerId, deque[Levels]] = {}
        self._counted, self._due = 0, _ROUNDS

    def levels(self) -> Levels:
        """What to tell the coordinator."""
        ids = self._membership.view.ids
        return tuple(_level(self._endpoint.bandwidth_Bps(peer)) for peer in ids) if len(ids) <= _WORLD_MOST else ()

    def told(self, peer: PeerId, levels: Levels) -> None:
        """A member has told the coordinator."""
        view = self._membership.view
        if self._generation != view.generation:
            self._generation, self._counted = view.generation, 0
            self._told.clear()
        if 0 < len(levels) == len(view.ids) and max(levels) <= LEVEL_MAX:
            self._told.setdefault(peer, deque(maxlen=_ROUNDS)).append(levels)

    def consider(self) -> None:
        """A round is over: have a new view decided if it is worth it."""
        view = self._membership.view
        self._counted += 1
        if self._counted < self._due or self._counted % _ROUNDS or view.one_machine or len(self._told) < len(view.ids):
            return
        found = self._found(view)
        if all(found) and self._worth(view, found):
            sometimes("parts by bandwidth")
            self._due *= 2
            self._membership.learn(dict(zip(view.ids, found, strict=True)))

    def _found(self, view: View) -> list[int]:
        """The bandwidth of each member, of the median of what was told lately."""
        ways = [[median_low(way) for way in zip(*self._told[peer], strict=True)] for peer in view.ids]
        up, down = map(max, ways), map(max, zip(*ways, strict=True))
        return [round(2 ** (min(ends) / 2)) if min(ends) else 0 for ends in zip(up, down, strict=True)]

    def _worth(self, view: View, found: list[int]) -> bool:
        bandwidths, everybody = coarse(found), [True] * len(found)
        alike = (1 / len(found),) * len(found)
        latency_s = 2 * self._costs().alpha_s

        def seconds(shares: tuple[float, ...] | None) -> float:
            return latency_s + self._size_bytes * bottleneck(shares or alike, bandwidths, everybody)

        return seconds(by_bandwidth(bandwidths)) < _BETTER * seconds(view.shares)


def _level(bandwidth_Bps: float | None) -> int:
    return min(LEVEL_MAX, max(1, round(2 * math.log2(bandwidth_Bps)))) if bandwidth_Bps else 0
