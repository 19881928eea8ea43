"""The endpoint of a simulated peer. It records each delivery of a message that is not the next one of its lane."""

from __future__ import annotations

import random

from ...protocols.endpoint import Endpoint
from ...protocols.link.envelope import Envelope
from ...protocols.link.link import Link
from ...protocols.testpoints import witness
from ...protocols.transport import PeerId, Transport
from ...protocols.wire.frames import Buffer, Frame, Lane
from .event_log import Misdelivered


class Overheard(Endpoint):
    """An endpoint that checks its own delivery. Frames may arrive in any order and more than once, but each message of
    a link must be delivered once, to the incarnation that it was sent to, and the messages of a lane in order. A
    violation is recorded as `Misdelivered`."""

    def __init__(self, transport: Transport, *, patience_s: float, rng: random.Random) -> None:
        super().__init__(transport, patience_s=patience_s, rng=rng)
        self._waiting: dict[int, Frame] = {}
        """Identity of a message -> its frame, which has arrived and was not delivered yet."""
        self._handed_on: dict[PeerId, tuple[Link, dict[Lane, int]]] = {}

    def _arrived(self, sender: PeerId, frame: Frame, payload: Buffer, cost: int) -> None:
        if frame.lane is not Lane.LINK:
            self._waiting[id(frame.message)] = frame
        super()._arrived(sender, frame, payload, cost)
        link, handed_on = self._handed_on.get(sender, (None, {}))
        if link is self.links.get(sender) and frame.seq < handed_on.get(frame.lane, 0):
            self._waiting.pop(id(frame.message), None)  # a duplicate

    def _deliver(self, link: Link, envelope: Envelope) -> None:
        frame = self._waiting.pop(id(envelope.message))
        if link.peer not in self._handed_on or self._handed_on[link.peer][0] is not link:
            self._handed_on[link.peer] = link, dict.fromkeys(Lane, 0)
        handed_on = self._handed_on[link.peer][1]
        if frame.seq != handed_on[frame.lane] or frame.towards != link.incarnation:
            what = type(envelope.message).__name__
            witness(Misdelivered(link.peer, what, frame.seq, handed_on[frame.lane]))
        handed_on[frame.lane] = max(handed_on[frame.lane], frame.seq + 1)
        super()._deliver(link, envelope)
