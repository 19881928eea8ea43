"""A random order of deliveries: each directed way has a priority, and the lower it is, the later its messages arrive.

Probabilistic concurrency testing (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding
bugs", ASPLOS 2010), for messages (Ozkan et al., "Randomized testing of distributed systems with probabilistic
guarantees", OOPSLA 2018). The order of two messages then depends not on the distance of their senders but on the ranks
of the ways, which are a random permutation. At some drawn messages the way of that message falls to the lowest rank.

| paper | here |
|---|---|
| a thread, or chain of messages | a directed way between two peers |
| its priority | the extra latency of the way: its rank as a part of `bound_s` |
| d - 1 priority change points among k steps | `changes` of the first `_SENT` messages that are sent |

No peer may be declared dead by this, hence two differences: no message waits longer than `bound_s`, which is at most a
quarter of the patience, and heartbeats wait only behind messages sent before them. A way keeps its order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ...protocols.link.lane import Pulse
from ...protocols.transport import PeerId
from ..frames import kind_of

_BOUNDS = (1 / 64, 1 / 16, 1 / 4)
"""The longest extra wait, in patiences."""
_SENT = 3000
"""The number of the last message at which a priority may change."""


class Priorities:
    """The priorities of the ways between `peers`, drawn from `seed`, with so many `changes`."""

    def __init__(self, peers: Sequence[PeerId], seed: int, *, changes: int, patience_s: float) -> None:
        chance = random.Random(f"{seed} priorities")
        ways = [(sender, to) for sender in peers for to in peers if sender != to]
        chance.shuffle(ways)
        self.bound_s = patience_s * chance.choice(_BOUNDS)
        self._extra_s = {way: self.bound_s * rank / max(1, len(ways) - 1) for rank, way in enumerate(ways)}
        self._changes = {round(math.exp(chance.uniform(0.0, math.log(_SENT)))) for _ in range(changes)}
        self._sent = 0

    def extra_s(self, sender: PeerId, to: PeerId, header: bytes) -> float:
        """The extra latency, in seconds, of a frame that is sent now."""
        if kind_of(header) == Pulse.__name__:
            return 0.0
        self._sent += 1
        if self._sent in self._changes:
            self._extra_s[sender, to] = self.bound_s
        return self._extra_s.get((sender, to), 0.0)
