"""A random order of deliveries: each way, a directed pair of peers, has a priority. The lower it is, the later the
way's messages arrive.

Probabilistic concurrency testing (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding
bugs", ASPLOS 2010), for messages (Ozkan et al., "Randomized testing of distributed systems with probabilistic
guarantees", OOPSLA 2018). The order of two messages then depends on the ranks of their ways, which are a random
permutation, and not on the distance of their senders. When a message of a drawn number is sent, its way falls to the
lowest rank.

| paper | here |
|---|---|
| a thread, or chain of messages | a directed way between two peers |
| its priority | the extra latency of the way: `bound_s` times its rank, as a share of the lowest |
| d - 1 priority change points among k steps | `changes` of the first `_SENT` messages that are sent |

Priorities must not make a live peer be declared dead. Therefore two things differ from the papers: no message waits
longer than `bound_s`, which is at most a quarter of the patience, and heartbeats have no extra latency of their own.
Messages of one way keep their order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ...protocols.link.lane import Pulse
from ...protocols.transport import PeerId
from ..frames import kind_of

_BOUNDS = (1 / 64, 1 / 16, 1 / 4)
"""The values from which the longest extra latency is drawn, in patiences."""
_SENT = 3000
"""The number of the last sent message at which a priority may change."""


class Priorities:
    """The priorities of the ways between `peers`, drawn from `seed`. `changes`: number of changes of priority;
    `patience_s`: the patience of the run's settings."""

    def __init__(self, peers: Sequence[PeerId], seed: int, *, changes: int, patience_s: float) -> None:
        chance = random.Random(f"{seed} priorities")
        ways = [(sender, to) for sender in peers for to in peers if sender != to]
        chance.shuffle(ways)
        self.bound_s = patience_s * chance.choice(_BOUNDS)
        self._extra_s = {way: self.bound_s * rank / max(1, len(ways) - 1) for rank, way in enumerate(ways)}
        self._changes = {round(math.exp(chance.uniform(0.0, math.log(_SENT)))) for _ in range(changes)}
        self._sent = 0

    def extra_s(self, sender: PeerId, to: PeerId, header: bytes) -> float:
        """Count a frame that is sent now, and return its extra latency in seconds: that of its way, which becomes the
        longest first if this is one of the drawn changes. A heartbeat is not counted, and has none."""
        if kind_of(header) == Pulse.__name__:
            return 0.0
        self._sent += 1
        if self._sent in self._changes:
            self._extra_s[sender, to] = self.bound_s
        return self._extra_s.get((sender, to), 0.0)
