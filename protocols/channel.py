"""A channel: the port through which one conversation exchanges messages with other peers. A conversation is an
algorithm that peers run together; it knows nothing else of the network.

Several conversations, or two levels of the same one, share a peer's endpoint, each through a channel of its own name. A
channel has its own kinds of messages with their handlers, its own set of watched peers, and its own count of bytes.
`send` waits for the receiver's credit. Between two peers the messages of one lane, CONTROL or DATA, arrive exactly once
and in order, over all channels together, until one of them gives the other up as lost. Only the lane LOOSE has neither
(`tell`). A conversation takes time from the running loop (`loop.time()`, `asyncio.sleep`), which is
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
        """Bytes of this channel's messages that were sent, headers included. Each message counts once, however often
        the link sends it; one that still waits for credit does not count yet."""
        return self.endpoint.links.outbox.bytes_sent_by[self.name]

    @property
    def bytes_received(self) -> int:
        """Bytes of this channel's messages, headers included, that were handed to a handler or to the asker."""
        return self.endpoint.reception.bytes_received_by[self.name]

    def on(self, kind: type, handler: Handler) -> None:
        """Hand every message of the class `kind` that arrives on this channel to `handler`, also, in the loop's next
        iteration, those that were kept because there was no handler. The handler runs on the loop, must be quick, and
        calls `Envelope.done` of a DATA message once its payload is consumed. It refuses a message by PeerMisbehaved, a
        fault of the sender; any other exception is reported on this side. Raises ValueError when that kind has a
        handler already."""
        self.endpoint.reception.on(self.name, kind, handler)

    def resume(self, envelope: Envelope, handler: Handler) -> None:
        """Hand a message that its handler has put off to `handler` now. As on arrival, PeerMisbehaved of the handler is
        a fault of the sender, and other exceptions are reported: none reaches the caller of this method."""
        self.endpoint.reception.resume(envelope, handler)

    def watch(self, peers: Set[PeerId]) -> None:
        """Exchange heartbeats with these peers, in addition to those that other channels watch. Replaces the set that
        this channel watched before. The endpoint's `on_lost` is called with a peer that is silent or has ended. To a
        peer without a link, or with a lost one, a link is begun now; raises PeerLost when there is no room for it. Does
        nothing once the endpoint is closed."""
        if not self.endpoint.links.closed:
            self.endpoint.links.watch(self.name, set(peers))

    def close(self) -> None:
        """Remove this channel's handlers and watch no peer. Another conversation may then use the name. Until it sets
        its first handler, questions that arrive, or were kept for want of a handler, are refused, and other messages
        are kept for it, as far as there is room. This peer's own open questions stay open."""
        self.endpoint.reception.off(self.name)
        self.watch(set())

    async def send(self, to: PeerId, message: object, payload: Buffer = b"") -> None:
        """Send a message of the lane CONTROL or DATA, after waiting for the receiver's credit. It has not arrived yet
        when this returns. If the call is cancelled while it waits, nothing is sent. The payload must not change from
        now on. Raises PeerLost; ValueError for a message that no receiver would take."""
        waiting = self.offer(to, message, payload)
        if waiting is not None:
            await waiting

    def offer(self, to: PeerId, message: object, payload: Buffer = b"") -> asyncio.Future[None] | None:
        """As `send`, for a caller that does not wait here. Returns None when the message was sent; else a future that
        is done when it is sent, or raises PeerLost. Cancel the future to withdraw the message. Raises what `send`
        raises."""
        return self.endpoint.links.known(to).offer(self.name, message, payload)

    def post(self, to: PeerId, message: object) -> None:
        """Send a message of the lane CONTROL without waiting. Does nothing for a lost peer, which `on_lost` has
        reported, and once the endpoint is closed. A peer for which 4096 messages wait is given up: `on_lost` is called
        within this call. Raises ValueError for a message of another lane or that no receiver would take; PeerLost when
        this endpoint has too many links in use to begin another."""
        self.endpoint.post(self.name, to, message)

    def tell(self, to: PeerId, message: object) -> None:
        """Send a message of the lane LOOSE once, at once and outside of any link, as a datagram. It may be lost, arrive
        twice or be overtaken by later ones, and the receiver has to bear that. It costs a frame, and neither a
        handshake nor an acknowledgement. Does nothing once the endpoint is closed. Raises ValueError for a message of
        another lane, or that no receiver would take."""
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
        """Send ``question(ask)``, where `ask` is the number that the answer repeats in its field `ask`, and return the
        answer, of one of the classes in `answers`. The caller calls its `Envelope.done` as a handler does (`on`).
        Raises PeerLost when the peer is lost, when it refuses the question, when its answer is of another class, or
        when it does not answer within `within_s` seconds after the question was sent (None: no limit); ValueError for a
        question that no receiver would take."""
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
        """As `ask` without a limit, for a caller that does not wait here: `told` is called once, after this call, with
        the answer, or with PeerLost, which `ask` would raise. `Asking.cancel` withdraws the question. Raises PeerLost
        when the question cannot be sent at all; ValueError for one that no receiver would take."""
        offer = self.endpoint.links.known(to).offer
        return self.endpoint.reception.asking(
            to, self.name, lambda ask: offer(self.name, question(ask), payload), answers, told
        )

    def refuse(self, question: Envelope, why: str, error: Exception | None = None) -> None:
        """Answer `question` with a refusal: the asking peer's `ask` raises PeerLost, whose text has the first 200
        letters of `why`. An `error` is also given to the loop's exception handler on this side. For a message that is
        no question nothing is sent."""
        self.endpoint.reception.refuse(question, why, error)
