"""One lane of a link: `Outbound`, the sender's half, and `Inbound`, the receiver's half, give ordered, exactly-once
delivery under credit. Credit is the byte count up to which the receiver allows the sender to send."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..wire.frames import HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, Buffer, Counts, Lane, Packed, PeerMisbehaved, message
from .congestion import ASK_S, CHUNK_BYTES_MIN, WINDOW_BYTES_MAX, Rate
from .envelope import Envelope
from .lost import PeerLost

CREDIT_BYTES_MIN = 256 * 1024
"""The least bytes of unconsumed messages that a receiver allows one sender."""
_ASK_BYTES = 32 * 1024
MESSAGE_COST_BYTES = 256


def cost_bytes(header: Buffer, payload: Buffer) -> int:
    """The bytes that a message counts for in windows and credit: its own, and 256 for keeping it, so that credit bounds
    memory however small the messages are."""
    return len(header) + len(payload) + MESSAGE_COST_BYTES


MESSAGE_BYTES_MAX = HEADER_BYTES_MAX + PAYLOAD_BYTES_MAX + MESSAGE_COST_BYTES


class Room(NamedTuple):
    """The receiver's two limits on the sender of a lane; the one that is reached first holds (`Inbound.limit_bytes`).
    `unconsumed_bytes`: the most bytes sent beyond those that the receiver has consumed, so those on the way count too;
    `ahead_bytes`: the most beyond those that have arrived at it."""

    unconsumed_bytes: int
    ahead_bytes: float = math.inf


@message("link", lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class Pulse:
    """A heartbeat: a frame for its counts alone (`wire.frames.Counts`), or a question for those of the other side.

    ping: number of a question for a pong (0: none). pong: number of the ping that this answers (0: none). at_s: send
    time in seconds on the sender's clock; only differences have a meaning.
    """

    ping: int
    pong: int
    at_s: float


@dataclass(slots=True, eq=False)
class Packet:
    """A message on its way. `posted`: done when it is sent; None: nobody waits for that. `under_way`: it was sent.
    `cost`: its bytes of credit. `after_ping`: number of the last ping sent before this packet; the pong to a later ping
    tells whether it arrived. `acked_bytes`, `acked_at`: bytes acknowledged on the lane when this packet was sent, and
    when the last of them were; None once the packet was sent more than once. `since_s`: seconds between sending the
    newest acknowledged packet and sending this one. Fields that the constructor does not take are set when it is
    sent."""

    packed: Packed
    payload: Buffer
    header: bytes = b""
    posted: asyncio.Future[None] | None = None
    under_way: bool = False
    seq: int = field(init=False)
    cost: int = field(init=False)
    after_ping: int = field(init=False)
    acked_bytes: int = field(init=False)
    acked_at: float | None = field(init=False)
    posted_at: float = field(init=False)
    since_s: float = field(init=False)


@dataclass(slots=True)
class Outbound:
    """The sending half of a lane: a queue, and the packets in flight. Byte counts are costs (`cost_bytes`) since the
    link began. `asked_bytes`: bytes sent before the last ping that asked for an acknowledgement, or acknowledged
    without one; `ask_at`: earliest time of the next ping that a full window does not force. `acked_at`: time of the
    last acknowledgement; `acked_posted_at`: send time of the packet that it acknowledged. `limit_bytes`: the receiver's
    credit, 0 before the first pulse; `first_limit_bytes`: its first credit, which is as much as it takes at once.
    `full_until_seq`: the number of the first packet that had to wait for the window the last time; `oldest`: see
    `stalled`."""

    limit_bytes: int = 0
    first_limit_bytes: int = 0
    queue: deque[Packet] = field(default_factory=deque)
    in_flight: deque[Packet] = field(default_factory=deque)
    next_seq: int = 0
    posted_bytes: int = 0
    asked_bytes: int = 0
    ask_at: float = 0.0
    acked_bytes: int = 0
    acked_at: float = 0.0
    acked_posted_at: float = 0.0
    full_until_seq: int = 0
    oldest: Packet | None = None

    @property
    def unasked_bytes(self) -> int:
        """Bytes that were sent, that no ping has asked about since, and that no message has acknowledged."""
        return self.posted_bytes - self.asked_bytes

    def may_ask(self, *, known: bool, now: float) -> bool:
        """Whether to ping after what is sent now, although the window is not full: the acknowledgement measures the
        bandwidth. That takes 2 KiB of `unasked_bytes`, or 32 KiB if a bandwidth was measured before (`known`). True
        counts as such a ping, and for 0.02 s from `now` no other is due."""
        if self.unasked_bytes < (_ASK_BYTES if known else CHUNK_BYTES_MIN) or now < self.ask_at:
            return False
        self.ask_at = now + ASK_S
        return True

    def sendable(self, window_bytes: int, now: float, sealed: Callable[[Packed, int], bytes]) -> Packet | None:
        """The packet that the caller sends now, which is in flight from now on. None: the window or the credit is used
        up, or no packet waits. Credit may be overshot by one message, and a window in which nothing is in flight takes
        any message, so that none is too large for them. `now`: on the link's clock. `sealed` makes the header of a
        packed message with its sequence number. The header has the counts of the other direction, which count as told
        from then on, so it is not made while the message waits for credit: if each side waited for the credit in the
        other's header, both would stop. While it waits for the window, a ping tells the same counts."""
        if not self.queue or self.posted_bytes >= self.limit_bytes:
            return None
        packet = self.queue[0]
        if not packet.header:
            packet.seq, packet.header = self.next_seq, sealed(packet.packed, self.next_seq)
            packet.cost = cost_bytes(packet.header, packet.payload)
        if self.in_flight and self.posted_bytes - self.acked_bytes + packet.cost > window_bytes:
            self.full_until_seq = self.next_seq
            return None
        if not self.in_flight:
            self.acked_at = self.acked_posted_at = now
        packet.acked_bytes, packet.acked_at = self.acked_bytes, self.acked_at
        packet.posted_at, packet.since_s = now, now - self.acked_posted_at
        packet.under_way = True
        self.in_flight.append(self.queue.popleft())
        self.next_seq += 1
        self.posted_bytes += packet.cost
        return packet

    def granted(self, limit_bytes: int) -> None:
        """Raise the credit limit to the one that the receiver has told. A lower one, as of a late pulse, changes
        nothing."""
        self.limit_bytes = max(self.limit_bytes, limit_bytes)
        self.first_limit_bytes = self.first_limit_bytes or limit_bytes

    def give_up(self, lost: PeerLost) -> None:
        """Forget all packets. The `posted` of each packet that has not been sent yet fails with `lost`."""
        for packet in self.queue:
            if packet.posted is not None and not packet.posted.done():
                packet.posted.set_exception(lost)
        self.queue.clear()
        self.in_flight.clear()

    def stalled(self) -> bool:
        """Whether the oldest packet in flight is the same as at the previous call; False: it is not, or none is."""
        before, self.oldest = self.oldest, self.in_flight[0] if self.in_flight else None
        return self.oldest is not None and self.oldest is before

    def acknowledge(self, received: int, limit_bytes: int, now: float, *, by_message: bool = False) -> Rate | None:
        """Note that all packets before seq `received` have arrived, and the receiver's credit limit. `by_message`: a
        message of the receiver tells so, and no pulse. While packets wait, only pulses acknowledge, as these tell how
        long they have waited in queues; while none waits, messages tell as much as the pongs to pings would, so no ping
        is due for what they acknowledge. Returns the delivery rate of these packets;
        None if none of them is newly acknowledged, if the newest was sent more than once, if no time has passed, or if
        a message acknowledges them, as its sender may have had nothing to say for a while. The rate is the bytes
        acknowledged since the newest was sent, over the time in which they were acknowledged, or in which they were
        sent if that is longer: acknowledgements that queue behind other data arrive in bunches, which makes the first
        time too short."""
        newest = None
        if by_message and self.queue:
            received = 0  # a ping is under way
        while self.in_flight and self.in_flight[0].seq < received:
            newest = self.in_flight.popleft()
            self.acked_bytes += newest.cost
        self.granted(limit_bytes)
        if newest is None:
            return None
        if by_message:
            self.asked_bytes = max(self.asked_bytes, self.acked_bytes)
        self.acked_at, self.acked_posted_at = now, newest.posted_at
        if by_message or newest.acked_at is None or now <= newest.acked_at:
            return None
        rate_Bps = (self.acked_bytes - newest.acked_bytes) / max(now - newest.acked_at, newest.since_s)
        return Rate(rate_Bps, newest.seq < self.full_until_seq, newest.posted_at)


@dataclass(slots=True)
class Inbound:
    """The receiving half of a lane. `room` returns the present limits of its sender. `consumes`: each message counts as
    consumed as soon as it is handed on. `next_seq`: the next message in order; `early`: messages that arrived before
    it; `received_bytes`, `consumed_bytes`: costs (`cost_bytes`) since the link began; `told_*`: the numbers in the last
    frame to the sender; `low_bytes`: when less than this is left of its credit, the next message tells it of more."""

    room: Callable[[Inbound], Room]
    consumes: bool = False
    next_seq: int = 0
    received_bytes: int = 0
    consumed_bytes: int = 0
    early: dict[int, Envelope] = field(default_factory=dict)
    told_received: int = 0
    told_limit_bytes: int = 0
    low_bytes: float = math.inf

    def limit_bytes(self, room: Room) -> int:
        """The byte count, since the link began, up to which the sender may send with this room. It never falls below
        what the sender was told."""
        most = min(self.consumed_bytes + room.unconsumed_bytes, self.received_bytes + room.ahead_bytes)
        return max(self.told_limit_bytes, int(most))

    def owes(self) -> bool:
        """Whether a frame would tell the sender anything new: that more has arrived, or that it may send more."""
        limit_bytes = self.limit_bytes(self.room(self))
        return self.told_received != self.next_seq or limit_bytes > self.told_limit_bytes

    def is_short(self) -> bool:
        """Whether to send the sender a pulse with more credit now, as it may soon have to wait for that: less than a
        quarter of the smaller limit of `room` is left of its credit, and at least as much can be added."""
        left_bytes = self.told_limit_bytes - self.received_bytes
        if left_bytes >= WINDOW_BYTES_MAX // 4:  # as nearly always: no room is larger
            return False
        room = self.room(self)
        worth = max(1, min(room.unconsumed_bytes, room.ahead_bytes) // 4)
        return left_bytes < worth and self.limit_bytes(room) - self.told_limit_bytes >= worth

    def tell(self) -> None:
        """Note the present numbers as told: the caller sends them to the sender in a pulse."""
        self.told_received, room = self.next_seq, self.room(self)
        self.told_limit_bytes = self.limit_bytes(room)
        # With a rate the credit is given when it is due, by pulses (`Flow.came`).
        self.low_bytes = room.unconsumed_bytes // 2 if room.ahead_bytes == math.inf else -math.inf

    def tell_by_message(self) -> None:
        """As `tell`, for a message to the sender, which comes often: the credit stays the same until half of it is
        used, or, where `room` limits what is ahead (a rate), until a pulse tells of more."""
        if self.told_limit_bytes - self.received_bytes < self.low_bytes:
            self.tell()
        else:
            self.told_received = self.next_seq

    def take(self, seq: int, item: Envelope) -> Iterable[Envelope]:
        """Take the message `item` with the number `seq`, unless it has arrived before. Returns all messages that are
        now next in order, to be iterated at once. Raises PeerMisbehaved if the sender has sent more than its credit
        allows."""
        if seq < self.next_seq or seq in self.early:
            return ()
        received_bytes = self.received_bytes + item.cost
        over_bytes = received_bytes - MESSAGE_BYTES_MAX
        # It may go on beyond what it was told: the limit only grows.
        if over_bytes > self.told_limit_bytes and over_bytes > self.limit_bytes(self.room(self)):
            raise PeerMisbehaved(f"sent {received_bytes} bytes, beyond its credit")
        self.received_bytes = received_bytes
        if seq == self.next_seq and not self.early:  # as nearly always
            self.next_seq += 1
            if self.consumes:
                self.consumed_bytes += item.cost
            return (item,)
        self.early[seq] = item
        return self._next_in_order()

    def _next_in_order(self) -> Iterator[Envelope]:
        while (due := self.early.pop(self.next_seq, None)) is not None:
            self.next_seq += 1
            if self.consumes:
                self.consumed_bytes += due.cost
            yield due


def counts_of(control: Inbound, data: Inbound, *, by_message: bool) -> Counts:
    """The counts of a frame that is sent now to the sender of these lanes; they are noted as told. `by_message`: see
    `Inbound.tell_by_message`."""
    for inbound in (control, data):
        if by_message:
            inbound.tell_by_message()
        else:
            inbound.tell()
    return control.told_received, data.told_received, control.told_limit_bytes, data.told_limit_bytes
