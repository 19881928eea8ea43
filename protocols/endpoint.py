"""The port: all that a conversation may know of the world.

An endpoint sends typed messages to peers and hands arriving ones to whoever asked for their kind. Both worlds keep
the same delivery rules: between two peers messages of one lane arrive exactly once and in order, `send` waits for the
receiver's credit, and a peer that stays silent for `patience_s` is lost, which everybody who waits for it is told.
Conversations take time from the running loop (`loop.time()`, `asyncio.sleep`), which is virtual in simulation.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .link import Link, PeerLost
from .transport import Arrivals, PeerId, Transport
from .wire import Buffer, Lane, OtherVersion, PeerMisbehaved, decode, lane_of

INBOUND_BYTES_MAX = 256 << 20
"""What all peers together may have under way towards this one."""
_CREDIT_BYTES_MIN, _CREDIT_BYTES_MAX = 1 << 20, 8 << 20
_GARBAGE_MAX = 16
"""How often a peer may send what cannot be read before it is cut off."""


class Answer(Protocol):
    """A message that answers another: `ask` is the number the question carried."""

    @property
    def ask(self) -> int: ...


@dataclass(slots=True)
class Envelope:
    """A message that arrived. Whoever takes a DATA message calls `done()` once its payload is used up."""

    sender: PeerId
    message: Any
    payload: Buffer
    _link: Link | None
    _size: int

    def done(self) -> None:
        """Give the credit for this message back to its sender. Calling twice is harmless."""
        if self._link is not None:
            self._link.consumed(self._size)
            self._link = None


Handler = Callable[[Envelope], None]


class Endpoint:
    """One peer's mouth and ears, over any transport."""

    def __init__(self, transport: Transport, *, patience_s: float, rng: random.Random) -> None:
        """`patience_s`: how long a peer may be silent before it is lost. `rng` draws incarnations."""
        self.patience_s = patience_s
        self.bytes_sent = 0
        self.bytes_received = 0
        self.refused: dict[PeerId, str] = {}
        """Peers that sent what cannot be read, and what it was."""
        self.on_lost: list[Callable[[PeerId, str], None]] = []
        self._transport = transport
        self._rng = rng
        self._links: dict[PeerId, Link] = {}
        self._addresses: dict[PeerId, str] = {}
        self._handlers: dict[type, Handler] = {}
        self._asks: dict[int, tuple[PeerId, asyncio.Future[Envelope]]] = {}
        self._asked = 0
        self._garbage: dict[PeerId, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def id(self) -> PeerId:
        return self._transport.id

    @property
    def address(self) -> str:
        return self._transport.address

    @property
    def interval_s(self) -> float:
        """Between two heartbeats: four of them make the patience."""
        return self.patience_s / 4

    async def open(self) -> None:
        """Listen, test that strangers are refused, keep links alive.

        Raises OSError for an unusable address, RuntimeError when a stranger would get in.
        """
        self._loop = asyncio.get_running_loop()
        self._transport.open(Arrivals(self._frames, self._reconnected, self._misbehaved))
        try:
            await self._transport.self_test()
        except BaseException:
            self._transport.close()
            raise
        self._ticking = asyncio.create_task(self._tick(), name="heartbeats")

    def on(self, kind: type, handler: Handler) -> None:
        """Hand every arriving `kind` to `handler`. It runs on the loop and must be quick."""
        self._handlers[kind] = handler

    def admit(self, peer: PeerId) -> None:
        """Let `peer` talk to us."""
        self._transport.admit(peer)

    def dial(self, peer: PeerId, address: str) -> None:
        """Learn where `peer` is, and let it talk to us. The out-link opens when first needed."""
        self._transport.admit(peer)
        self._addresses[peer] = address
        if peer in self._links:
            self._transport.dial(peer, address)

    def watch(self, peers: set[PeerId]) -> None:
        """Exchange heartbeats with exactly these peers: their silence, or their end, is reported to `on_lost`."""
        for peer in peers - self._links.keys():
            self._link(peer)
        for peer, link in self._links.items():
            if peer in peers and not link.watched:
                link.heard_at = self._clock()
            link.watched = peer in peers

    async def send(self, to: PeerId, message: object, payload: Buffer = b"") -> None:
        """Send, waiting for credit. The payload must not change from now on. Raises PeerLost."""
        await self._link(to, revive=False).send(message, payload)

    def post(self, to: PeerId, message: object) -> None:
        """Send a control message without waiting. A lost peer is not an error here: `on_lost` has told of it."""
        if lane_of(message) is not Lane.CONTROL:
            raise ValueError(f"{type(message).__name__} is no control message: await send()")
        try:
            self._link(to, revive=False).post(message)
        except PeerLost as lost:
            self._lose(to, lost.why)

    async def ask(self, to: PeerId, question: Callable[[int], object], payload: Buffer = b"") -> Envelope:
        """Send ``question(ask)`` and return the message that answers it. Raises PeerLost, at the latest after the
        peer has been silent for the patience."""
        self._asked += 1
        ask, answer = self._asked, asyncio.get_running_loop().create_future()
        self._asks[ask] = (to, answer)
        try:
            await self.send(to, question(ask), payload)
            envelope: Envelope = await answer
        finally:
            del self._asks[ask]
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen: sending may have raised the same before
        return envelope

    def chunk_bytes(self, to: PeerId) -> int:
        """The payload size that suits the link to `to` now."""
        return self._link(to, revive=False).chunk_bytes

    def link_facts(self, to: PeerId) -> tuple[float | None, float | None]:
        """Round-trip time in seconds and bandwidth in bytes a second towards `to`, as far as measured."""
        link = self._link(to, revive=False)
        return link.rtt_s, link.bandwidth_Bps

    def is_lost(self, peer: PeerId) -> str | None:
        link = self._links.get(peer)
        return None if link is None else link.lost

    def forget(self, peer: PeerId) -> None:
        """Close the link to `peer`, who is not one of ours any more. It may still call again."""
        self._links.pop(peer, None)
        self._addresses.pop(peer, None)
        self._transport.hang_up(peer)

    async def drain(self) -> None:
        """Wait until all that was sent has been acknowledged or its receiver is lost."""
        for link in self._links.values():
            if link.busy:
                link.pulse(ping=True)  # its pong acknowledges everything; the heartbeat repeats it
        while any(link.busy and link.lost is None for link in self._links.values()):
            await asyncio.sleep(min(0.02, self.interval_s))

    async def close(self) -> None:
        """Drain, for at most the patience, then close."""
        try:
            async with asyncio.timeout(self.patience_s):
                await self.drain()
        except TimeoutError:
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Close now; what is still under way is lost."""
        if self._ticking is not None:
            self._ticking.cancel()
        for link in self._links.values():
            link.lose("this endpoint was closed")
        self._transport.close()

    def _clock(self) -> float:
        assert self._loop is not None, "open() the endpoint first"
        return self._loop.time()

    def _link(self, peer: PeerId, *, revive: bool = True) -> Link:
        link = self._links.get(peer)
        if link is None or (link.lost is not None and revive):
            if peer in self._addresses:
                self._transport.dial(peer, self._addresses[peer])
            link = self._links[peer] = Link(
                peer,
                self._rng.randrange(1, 2**62),
                clock=self._clock,
                post=lambda header, payload: self._post(peer, header, payload),
                deliver=lambda message, payload, size: self._deliver(peer, message, payload, size),
                credit_bytes=self._credit_bytes,
            )
            link.pulse(ping=True)
        return link

    def _credit_bytes(self) -> int:
        return max(_CREDIT_BYTES_MIN, min(_CREDIT_BYTES_MAX, INBOUND_BYTES_MAX // (len(self._links) or 1)))

    def _post(self, peer: PeerId, header: bytes, payload: Buffer) -> None:
        self.bytes_sent += self._transport.post(peer, header, payload)

    def _frames(self, sender: PeerId, header: Buffer, payload: Buffer, wire_bytes: int) -> None:
        self.bytes_received += wire_bytes
        if self._garbage.get(sender, 0) >= _GARBAGE_MAX:
            return
        try:
            frame = decode(header, len(payload))
            size = len(header) + len(payload)
            try:
                self._link(sender).arrived(frame, payload, size)
            except PeerLost as lost:
                watched = self._links[sender].watched
                self._lose(sender, lost.why)
                self._link(sender).watched = watched
                self._links[sender].arrived(frame, payload, size)
        except PeerMisbehaved as error:
            if isinstance(error, OtherVersion):
                self._link(sender).pulse()  # so that it learns our version, and says so to its user
            self._misbehaved(sender, str(error))

    def _deliver(self, sender: PeerId, message: object, payload: Buffer, size: int) -> None:
        link = self._links[sender] if lane_of(message) is Lane.DATA else None
        envelope = Envelope(sender, message, payload, link, size)
        asked = self._asks.get(getattr(message, "ask", -1))
        if asked is not None and asked[0] == sender and not asked[1].done() and type(message) not in self._handlers:
            asked[1].set_result(envelope)
        elif (handler := self._handlers.get(type(message))) is not None:
            handler(envelope)
        else:
            envelope.done()

    def _misbehaved(self, sender: PeerId, why: str) -> None:
        self.refused[sender] = why
        self._fail_asks(sender, why)
        self._garbage[sender] = self._garbage.get(sender, 0) + 1
        if self._garbage[sender] >= _GARBAGE_MAX:
            self._link(sender, revive=False).lose(f"it sent what cannot be read: {why}")
            self._lose(sender, why)
            self.forget(sender)

    def _lose(self, peer: PeerId, why: str) -> None:
        self._fail_asks(peer, why)
        for told in self.on_lost:
            told(peer, why)

    def _fail_asks(self, peer: PeerId, why: str) -> None:
        for to, answer in list(self._asks.values()):
            if to == peer and not answer.done():
                answer.set_exception(PeerLost(peer, why))

    def _reconnected(self, peer: PeerId) -> None:
        link = self._links.get(peer)
        if link is not None and link.lost is None:
            link.pulse(ping=True)

    async def _tick(self) -> None:
        """Heartbeats. A tick that comes late means that this process stood still: then nobody else was silent."""
        due = self._clock() + self.interval_s
        while True:
            await asyncio.sleep(max(0.0, due - self._clock()))
            late = max(0.0, self._clock() - due)
            due = self._clock() + self.interval_s
            for link in list(self._links.values()):
                if link.lost is None:
                    self._beat(link, forgiven_s=late)

    def _beat(self, link: Link, *, forgiven_s: float) -> None:
        expecting = link.watched or link.busy or any(to == link.peer for to, _ in self._asks.values())
        if not expecting:
            link.heard_at = self._clock()
            if link.owes_pulse:
                link.pulse()
            return
        link.heard_at += forgiven_s
        if self._clock() - link.heard_at > self.patience_s:
            trouble = self._transport.trouble(link.peer)
            why = f"not heard of for {self.patience_s:g} s" + (f": {trouble}" if trouble else "")
            link.lose(why)
            self._lose(link.peer, why)
        else:
            link.pulse(ping=True)
