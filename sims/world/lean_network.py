"""A lean network: it carries messages between state machines, without endpoints, for more peers than a `Network` can
hold.

A message is delivered after a random latency, and encoded only to measure its size. A loose message is lost with the
probability `loss`. Any other message arrives, as over a link. Where the way from a sender to a receiver is cut, no
message arrives.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

from ...protocols.transport import PeerId, wire_bytes
from ...protocols.wire.frames import Lane, encode, lane_of

LATENCY_S = (0.01, 0.05)


class LeanNetwork:
    """Virtual time and the messages under way. `take` is called with (sender, receiver, message) when a message
    arrives."""

    def __init__(self, take: Callable[[PeerId, PeerId, object], None], *, loss: float, seed: int) -> None:
        self.now_s, self.loss, self._take = 0.0, loss, take
        self.sent = Counter[str]()
        """Messages sent, by kind."""
        self.sent_bytes = 0
        """Bytes on the wire while `measured`."""
        self.measured = False
        self.cut: Callable[[PeerId, PeerId], bool] = lambda sender, to: False
        """Whether the way from one peer to another is cut."""
        self._chance = random.Random(f"lean network {seed}")
        self._due: list[tuple[float, float, Callable[..., object], tuple[object, ...]]] = []

    def run(self, until_s: float) -> None:
        """Deliver messages and run timers until the virtual time `until_s`."""
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, do, what = heapq.heappop(self._due)
            do(*what)
        self.now_s = until_s

    def at(self, when_s: float, do: Callable[..., object], *what: object) -> None:
        """Call `do` with `what` at the virtual time `when_s`. Calls for the same time come in a random order."""
        heapq.heappush(self._due, (when_s, self._chance.random(), do, what))

    def carry(self, sender: PeerId, to: PeerId, message: object, channel: str) -> None:
        """Send a message of `sender` to the peer `to`. It is dropped if `cut` says so; a loose one may be lost
        (`loss`)."""
        self.sent[type(message).__name__] += 1
        if self.measured:
            header = encode(message, 0, incarnation=1 << 60, towards=1 << 60, seq=1 << 10, channel=channel)
            self.sent_bytes += wire_bytes(len(header), 0, encrypted=True)
        lost = lane_of(message) is Lane.LOOSE and self.loss > 0 and self._chance.random() < self.loss
        if not lost and not self.cut(sender, to):
            self.at(self.now_s + self._chance.uniform(*LATENCY_S), self._take, sender, to, message)
