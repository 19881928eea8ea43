"""The endpoint of a simulated peer. It records where its own delivery breaks a rule, such as a message that is not the
next one of its lane, and alters the parts of a state that come from liars."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from ...protocols.endpoint import Endpoint
from ...protocols.link.envelope import Envelope
from ...protocols.link.link import Link
from ...protocols.link.refusals import NotOpen
from ...protocols.members.echoes import Echo
from ...protocols.members.edges import Reaches
from ...protocols.members.messages import (
    Adopt,
    Adopted,
    Behind,
    Install,
    Learned,
    Promise,
    Propose,
    Suspicion,
)
from ...protocols.testpoints import witness
from ...protocols.transfer.snapshot_transfer import Part
from ...protocols.transport import PeerId, Transport
from ...protocols.wire.frames import Buffer, Frame, Lane, Unopened, message
from .event_log import Faulted, Heard, Misdelivered, Silent, Told, Unpaid

HEARD = (Propose, Promise, Adopt, Adopted, Echo, Behind, Suspicion, Learned, Reaches, Unopened)
"""The kinds of messages, as a rule of changes of the view, that are recorded where they are delivered."""
TOLD = (Propose, Promise, Adopt, Adopted, Install, Behind, NotOpen)
"""The kinds of messages that are recorded where they are sent."""


@message("foreign")
@dataclass(frozen=True, slots=True)
class Foreign:
    """A question of a conversation that no peer of a simulation knows: it arrives `Unopened`."""

    ask: int


class Overheard(Endpoint):
    """An endpoint that checks its own delivery. Frames may arrive in any order and more than once, but each message of
    a link must be delivered once, to the incarnation that it was sent to, and the messages of a lane in order. A
    violation is recorded as `Misdelivered`. It also records each fault that it counts of another peer, and each silence
    for which it gives one up."""

    def __init__(self, transport: Transport, *, patience_s: float, rng: random.Random) -> None:
        super().__init__(transport, patience_s=patience_s, rng=rng)
        self.liars = frozenset[PeerId]()
        """The peers whose parts of a state arrive with an altered bit, as if they gave them so."""
        self._waiting: dict[int, Frame] = {}
        """Identity of a message -> its frame, which has arrived and was not delivered yet."""
        self._heard_s: dict[PeerId, float] = {}
        """When the last frame of each peer came, of the process that the link is bound to, on the loop's clock."""
        self._handed_on: dict[PeerId, tuple[Link, dict[Lane, int]]] = {}

    def _arrived(self, sender: PeerId, frame: Frame, payload: Buffer, cost: int) -> None:
        if isinstance(frame.message, Foreign):
            frame = frame._replace(message=Unopened(frame.lane))
        if frame.lane is not Lane.LINK:
            self._waiting[id(frame.message)] = frame
        super()._arrived(sender, frame, payload, cost)
        if (there := self.links.get(sender)) is not None and there.towards == frame.incarnation:
            self._heard_s[sender] = asyncio.get_running_loop().time()
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
        if isinstance(envelope.message, HEARD):
            witness(Heard(link.peer, envelope.message))
        handed_on[frame.lane] = max(handed_on[frame.lane], frame.seq + 1)
        super()._deliver(link, self._watched(envelope))

    def _watched(self, envelope: Envelope) -> Envelope:
        """The message, which records the credit that its receiver gives back. A liar's part is altered."""

        def given(credit: int) -> None:
            if credit != envelope.cost:
                witness(Unpaid(envelope.sender, envelope.cost, credit))
            envelope.done()

        payload = envelope.payload
        if envelope.sender in self.liars and isinstance(envelope.message, Part) and len(payload):
            payload = bytes(payload[:-1]) + bytes([payload[-1] ^ 1])
        return Envelope(envelope.sender, envelope.message, payload, envelope.cost, envelope.channel, given)

    def post(self, channel: str, to: PeerId, message: object) -> None:
        if isinstance(message, TOLD):
            witness(Told(to, message))
        super().post(channel, to, message)

    def _count(self, sender: PeerId, why: str) -> None:
        witness(Faulted(sender))
        super()._count(sender, why)

    def _silent(self, link: Link) -> None:
        if link.peer in self._heard_s:
            witness(Silent(link.peer, self._heard_s[link.peer]))
        super()._silent(link)
