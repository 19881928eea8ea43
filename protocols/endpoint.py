"""An endpoint: one peer's end of all its links, which its conversations share, each through a `Channel` of its own.

The delivery rules are the same over sockets and in simulation. Between two peers, the messages of one lane arrive
exactly once and in order. A watched peer that stays silent for `patience_s` is lost, and its waiters are told.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

from .announcement import Here
from .budget import Budget
from .link.dispatch import Reception
from .link.envelope import Envelope
from .link.heartbeats import Heartbeats
from .link.lane import cost_bytes
from .link.link import Link, PeerLost
from .link.misbehaviour import Trust
from .link.table import CLOSED, Links
from .link.telling import tell_all
from .shaping.path import ShapedTo
from .testpoints import buggify
from .transport import Arrivals, PeerId, Pipes, Transport
from .wire.frames import Buffer, Frame, Lane, OtherVersion, PeerMisbehaved, decode, lane_of

_FOR_TRANSPORTS = (ShapedTo, Here)
SMALLEST_CHUNK_BYTES = 16
"""The size of a chunk that simulations choose at times: smaller than any real link needs."""


class Endpoint:
    """Sends and receives all messages of one peer. `on_lost`: functions called with each lost peer and the reason."""

    def __init__(self, transport: Transport, *, patience_s: float, rng: random.Random) -> None:
        """`patience_s`: seconds that a peer may be silent before it is lost. `rng` draws numbers of links and
        questions."""
        self.patience_s = patience_s
        self.bytes_received = 0
        self.on_lost: list[Callable[[PeerId, str], None]] = []
        self._transport, self._rng, self._ended = transport, rng, set[PeerId]()
        self.whence = transport.whence
        self.reception = Reception(self.draw(), self.post, self._misbehaved)
        self.links = Links(transport, rng, ended=self.reception.ended, patience_s=patience_s)
        self.on_ended = self.reception.on_ended
        """Functions called with each peer whose link has ended; its messages without a handler are dropped by then."""
        self._trust = Trust(transport.whence, lambda peer: transport.hang_up(peer, call=True))
        self.refused, self.on_refused = self._trust.refused, self._trust.on_refused
        """By peer, why a message of it was refused; functions that are called with a `Refusal`, at a limited rate."""
        self._heartbeats = Heartbeats(
            self.links, patience_s, asked=lambda: self.reception.asked, ticked=self._ticked, silent=self._silent
        )
        self._ticking: asyncio.Task[None] | None = None

    @property
    def id(self) -> PeerId:
        return self._transport.id

    @property
    def address(self) -> str:
        """The address at which others reach this peer, or `NOWHERE`."""
        return self._transport.address

    @property
    def machine(self) -> str:
        """A name that is equal for peers that can share memory; "": this peer cannot share memory."""
        return self._transport.machine

    @property
    def pipes(self) -> Pipes | None:
        """The pipes, streams of bytes through a relay, of a peer that cannot be dialled; None: this one can."""
        return self._transport.pipes

    @property
    def budget(self) -> Budget | None:
        """The limits on the bytes that this peer sends and receives; None: there are none."""
        return self._transport.budget

    @property
    def bytes_sent(self) -> int:
        """Bytes that the transport has taken (`Transport.post`), framing and repeated frames included."""
        return self.links.outbox.bytes_sent

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived and that no conversation has consumed yet."""
        return self.links.held_bytes

    @property
    def interval_s(self) -> float:
        """Seconds between two heartbeats: a quarter of the patience."""
        return self._heartbeats.interval_s

    async def open(self) -> None:
        """Listen, test that peers that were not admitted are refused, and begin heartbeats. Raises OSError for an
        unusable address, RuntimeError when such a peer would get in or the test has no result."""
        self._transport.open(Arrivals(self._frames, self._reconnected, self._misbehaved))
        try:
            await self._transport.self_test()
        except BaseException:
            self.abort()
            raise
        self._ticking = asyncio.create_task(self._heartbeats.beat(), name="heartbeats")

    def admit(self, peer: PeerId, *, guest: tuple[str, type] | None = None) -> None:
        """Let `peer` connect to this one. `guest`: `peer` is a key that many guests share, and `guest` is the channel
        and the class of the only kind of message that guests of any key may send from now on."""
        self._transport.admit(peer, shared=guest is not None)
        self._trust.let_in.add(peer)
        self.reception.guests_say = guest or self.reception.guests_say

    def dismiss(self, peer: PeerId) -> None:
        """End the link to `peer` and refuse it from now on, or, if it is a shared key, all guests with that key."""
        self.links.forget_key(peer, "it is let in no more")
        self._trust.let_in.discard(peer)
        self._transport.dismiss(peer)

    def lapse(self, peer: PeerId) -> None:
        """End the link to `peer`. It may connect again if `admit` has let it in; if only `dial` has, it is refused."""
        self.forget(peer)
        if peer not in self._trust.let_in:
            self._transport.dismiss(peer)

    def dial(self, peer: PeerId, address: str) -> None:
        """Learn the address of `peer`, and let it connect to this one. The first message to it opens the link, also
        when it was lost. An endpoint that cannot be dialled itself connects to it at once."""
        self._transport.admit(peer)
        self.links.dial(peer, address)

    def post(self, channel: str, to: PeerId, message: object) -> None:
        """Send a CONTROL message on a channel without waiting. Does nothing for a lost peer, or once this endpoint is
        closed. A peer for which 4096 messages wait is given up. Raises ValueError and PeerLost as `Channel.post`."""
        if lane_of(message) is not Lane.CONTROL:
            raise ValueError(f"{type(message).__name__} is no control message: await send()")
        if self.links.closed or (link := self.links.known(to)).lost is not None:
            return
        try:
            link.post(channel, message)
        except PeerLost as lost:
            self.lose(to, lost.why)

    def tell(self, channel: str, to: PeerId, message: object) -> None:
        """Send a LOOSE message on a channel once, as a datagram, which may be lost. ValueError as `Channel.tell`."""
        if lane_of(message) is not Lane.LOOSE:
            raise ValueError(f"{type(message).__name__} is to arrive for certain: post or send it")
        self.links.tell(channel, to, message)

    def chunk_bytes(self, to: PeerId) -> int:
        """The payload bytes that chunks to `to` should have now, by the link's speed. PeerLost as for `Links.known`."""
        return SMALLEST_CHUNK_BYTES if buggify("the smallest chunk") else self.links.known(to).chunk_bytes

    def bandwidth_Bps(self, to: PeerId) -> float | None:
        """Measured bandwidth towards `to`, in bytes a second; None: not measured yet, or there is no link."""
        return None if (link := self.links.get(to)) is None else link.bandwidth_Bps

    def round_trip_s(self, to: PeerId) -> float | None:
        """The shortest recent round-trip time to `to`, in seconds; None: not measured yet, or there is no link."""
        return None if (link := self.links.get(to)) is None else link.round_trip_s

    def is_lost(self, peer: PeerId) -> str | None:
        """Why `peer` is lost; None: it is not, or there is no link with it."""
        return None if (link := self.links.get(peer)) is None else link.lost

    def trouble(self, peer: PeerId) -> str | None:
        """Why `peer` cannot be reached now, in words for the user; None: no trouble is known."""
        return self._transport.trouble(peer)

    def has_ended(self, peer: PeerId) -> bool:
        """Whether the process of `peer` is proven to have ended, and no message of a new one has arrived."""
        return peer in self._ended

    def draw(self) -> int:
        """A random number of 62 bits, not 0, almost surely different from all other peers' draws."""
        return self._rng.randrange(1, 2**62)

    def retry(self, peer: PeerId) -> None:
        """If `peer` is lost, forget that: the next message to it begins a new link, at its last address."""
        self.links.retry(peer)

    def gone(self, peer: PeerId, why: str) -> None:
        """Declare `peer` lost now, and close its connection: the caller has proof that its process has ended. Where
        there is no link to it, or a lost one, this only makes `has_ended` true."""
        self._ended.add(peer)
        if (link := self.links.get(peer)) is not None:
            self._give_up(link, why, hang_up=True)

    def report(self, peer: PeerId, why: str) -> None:
        """Report to the user that `peer` does something wrong, but do not count it among its faults."""
        self._trust.refuse(peer, why)

    def forget(self, peer: PeerId) -> None:
        """End the link to `peer` (with `on_ended`, not `on_lost`) and forget its address. It may connect again."""
        self.links.forget(peer, "it was given up as none of ours")

    async def drain(self) -> None:
        """Wait until every message sent has been acknowledged or its receiver is lost."""
        while busy := [link for link in self.links if link.busy]:
            await asyncio.gather(*(link.drained() for link in busy))

    async def close(self) -> None:
        """Wait until all messages are acknowledged, for at most the patience, then close."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.patience_s):
                    await self.drain()
        finally:
            self.abort()

    def abort(self) -> None:
        """Close now, for good. Messages in flight are lost, and every open question ends with PeerLost."""
        if self._ticking is not None:
            self._ticking.cancel()
        self.links.close()
        self.reception.fail_asks(None, CLOSED)
        self._transport.close()

    def _frames(self, sender: PeerId, header: Buffer, payload: Buffer, wire_bytes: int) -> None:
        self.bytes_received += wire_bytes
        if self.links.closed or self._trust.ignores(sender):
            return
        try:
            frame = decode(header, len(payload))
            cost = cost_bytes(header, payload)
            if frame.lane is Lane.LOOSE:  # it needs no link, and proves nothing about the sender's present process
                self.reception.hand_over(Envelope(sender, frame.message, b"", cost, frame.channel))
            elif not isinstance(frame.message, _FOR_TRANSPORTS):
                self._arrived(sender, frame, payload, cost)
        except OtherVersion as error:
            self._other_version(sender, str(error))
        except (PeerMisbehaved, PeerLost) as error:
            self._misbehaved(sender, str(error))

    def _arrived(self, sender: PeerId, frame: Frame, payload: Buffer, cost: int) -> None:
        if (link := self.links.get(sender)) is None or link.lost is not None:
            link = self.links.answer(sender)  # it calls, or calls again
            self._ended.discard(sender)
        try:
            for envelope in link.arrived(frame, payload, cost):
                self._deliver(link, envelope)
        except PeerLost as lost:
            self.lose(sender, lost.why)
            self._count(sender, "begins anew over and over: is its key in use on two machines?")
            if not self.links.closed and not self._trust.cut_off(sender):
                self._arrived(sender, frame, payload, cost)

    def _deliver(self, link: Link, envelope: Envelope) -> None:
        try:
            self.reception.hand_over(envelope)
        except PeerMisbehaved as error:
            self._misbehaved(link.peer, str(error))

    def _other_version(self, sender: PeerId, why: str) -> None:
        """Tell a peer of another version this one's, for its user; once an interval, or both would answer for ever."""
        link = self.links.get(sender) or self.links.answer(sender)
        if self._trust.spotless(sender):
            link.pulse()
        self._misbehaved(sender, why)
        self._give_up(link, why)

    def _misbehaved(self, sender: PeerId, why: str) -> None:
        if not self.links.closed and not self._trust.ignores(sender):
            self._trust.refuse(sender, why)
            self.reception.fail_asks(sender, why)
            self._count(sender, why)

    def _count(self, sender: PeerId, why: str) -> None:
        """Count a fault of `sender`, and cut it off after too many."""
        if self._trust.fault(sender):
            self._trust.refuse(sender, why)
            if (link := self.links.get(sender)) is not None:
                self._give_up(link, why)
            self.forget(sender)

    def _give_up(self, link: Link, why: str, *, hang_up: bool = False) -> None:
        if link.lost is None:
            link.lose(why)
            if hang_up:  # what still waits there must not go out later: its payload may be written to from now on
                self.links.hang_up(link.peer)
            self.lose(link.peer, why)

    def lose(self, peer: PeerId, why: str) -> None:
        """For a link that was given up: end open questions to `peer`, drop its messages without a handler, and call the
        functions in `on_ended` and `on_lost`."""
        self.reception.ended(peer, why)
        tell_all(f"telling that peer {peer:.12} is lost", self.on_lost, peer, why)

    def _reconnected(self, peer: PeerId) -> None:
        if (link := self.links.get(peer)) is not None and link.lost is None:
            link.pulse(ping=True)

    def _ticked(self) -> None:
        self._trust.forgive(asyncio.get_running_loop().time())
        self.links.dismiss_guests(2 * self.patience_s)

    def _silent(self, link: Link) -> None:
        trouble = self._transport.trouble(link.peer)
        why = f"not heard of for {self.links.patience_s(link):g} s" + (f": {trouble}" if trouble else "")
        self._give_up(link, why, hang_up=True)
