"""A channel: the port through which one conversation exchanges messages with other peers. A conversation is an
algorithm that peers run together; it knows nothing else of the network.

Several conversations, or two levels of the same one, share a peer's endpoint, each through a channel of its own name. A
channel has its own kinds of messages with their handlers, its own set of watched peers, and its own count of bytes.
`send` waits for the receiver's credit; between two peers the messages of one lane arrive exactly once and in order,
over all channels together. A conversation takes time from the running loop (`loop.time()`, `asyncio.sleep`), which is
virtual in simulation. Facts about a peer as a whole, such as its address, or whether it is lost, are the endpoint's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

from .endpoint import Endpoint
from .link.asking import Asking, Told
from .link.dispatch import Handler
from .link.envelope import Envelope as Envelope
from .transport import PeerId
from .wire.frames import CHANNEL_LETTERS_MAX, Buffer


class Channel:
    """One conversation's access to an endpoint: it sends messages under the channel's name, and its handlers get those
    that other peers send under that name."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        """Raises ValueError for a name that the wire does not take: 1 to 64 printable letters."""
        if not 0 < len(name) <= CHANNEL_LETTERS_MAX or not name.isprintable():
            raise ValueError(f"a channel's name has 1 to {CHANNEL_LETTERS_MAX} printable letters, not {name!r}")
        self.endpoint, self.name = endpoint, name

    @property
    def bytes_sent(self) -> int:
        """Bytes of this channel's messages, headers included. Each message counts once, however often the link sends
        it."""
        return self.endpoint.links.outbox.bytes_sent_by[self.name]

    @property
    def bytes_received(self) -> int:
        """Bytes of this channel's messages, headers included, that were handed to a handler or to the asker."""
        return self.endpoint.reception.bytes_received_by[self.name]

    def on(self, kind: type, handler: Handler) -> None:
        """Hand every message of the class `kind` that arrives on this channel to `handler`, also those that have
        arrived before and were kept. The handler runs on the loop and must be quick. Raises ValueError when that kind
        has a handler already."""
        self.endpoint.reception.on(self.name, kind, handler)

    def resume(self, envelope: Envelope, handler: Handler) -> None:
        """Hand a message that its handler has put off to `handler` now. As on arrival, PeerMisbehaved of the handler is
        a fault of the sender, and no exception of the handler reaches the caller."""
        self.endpoint.reception.resume(envelope, handler)

    def watch(self, peers: Set[PeerId]) -> None:
        """Exchange heartbeats with these peers, in addition to those that other channels watch. The endpoint's
        `on_lost` is called with a peer that is silent or has ended. Replaces the set that this channel watched
        before."""
        if not self.endpoint.links.closed:
            self.endpoint.links.watch(self.name, set(peers))

    def close(self) -> None:
        """Remove this channel's handlers and watch no peer. Another conversation may then use the name; it gets the
        messages that arrive from now on, as far as there is room to keep them."""
        self.endpoint.reception.off(self.name)
        self.watch(set())

    async def send(self, to: PeerId, message: object, payload: Buffer = b"") -> None:
        """Send a message, after waiting for the receiver's credit. If the call is cancelled while it waits, nothing is
        sent. The payload must not change from now on. Raises PeerLost; ValueError for a message that no receiver would
        take."""
        waiting = self.offer(to, message, payload)
        if waiting is not None:
            await waiting

    def offer(self, to: PeerId, message: object, payload: Buffer = b"") -> asyncio.Future[None] | None:
        """As `send`, for a caller that does not wait here. Returns None when the message was sent; else a future that
        is done when it is sent. Cancel the future to withdraw the message."""
        return self.endpoint.links.known(to).offer(self.name, message, payload)

    def post(self, to: PeerId, message: object) -> None:
        """Send a message of the lane CONTROL without waiting. For a lost peer this does nothing: `on_lost` has reported
        it. Raises ValueError for a message of another lane or that no receiver would take; PeerLost when this endpoint
        has too many links in use to begin another."""
        self.endpoint.post(self.name, to, message)

    def tell(self, to: PeerId, message: object) -> None:
        """Send a message of the lane LOOSE once, at once and outside of any link, as a datagram. It may be lost, arrive
        twice or be overtaken by later ones, and the receiver has to bear that. It costs a frame, and neither a
        handshake nor an acknowledgement. Raises ValueError for a message of another lane."""
        self.endpoint.tell(self.name, to, message)

    async def ask(
        self,
        to: PeerId,
        question: Callable[[int], object],
        payload: Buffer = b"",
        *,
        answers: tuple[type, ...],
        within_s: float | None = None,
    ) -> Envelope:
        """Send ``question(ask)``, where `ask` is the number that the answer repeats, and return the message that
        answers it, of one of the classes in `answers`. Raises PeerLost when the peer is lost, when it refuses the
        question, when its answer is of another class, or when it does not answer within `within_s` seconds (None: no
        limit); ValueError for a question that no receiver would take."""
        return await self.endpoint.reception.ask(
            to, self.name, lambda ask: self.send(to, question(ask), payload), answers, within_s
        )

    def asking(
        self,
        to: PeerId,
        question: Callable[[int], object],
        payload: Buffer = b"",
        *,
        answers: tuple[type, ...],
        told: Told,
    ) -> Asking:
        """As `ask` without a limit, for a caller that does not wait here: `told` is called with the answer, or with
        PeerLost, which `ask` would raise. Cancel what is returned to withdraw the question. Raises PeerLost; ValueError
        for a message that no receiver would take."""
        offer = self.endpoint.links.known(to).offer
        return self.endpoint.reception.asking(
            to, self.name, lambda ask: offer(self.name, question(ask), payload), answers, told
        )

    def refuse(self, question: Envelope, why: str, error: Exception | None = None) -> None:
        """Answer `question` with a refusal: the asking peer's `ask` raises PeerLost with `why`. An `error` is also
        reported on this side."""
        self.endpoint.reception.refuse(question, why, error)
