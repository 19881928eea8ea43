"""A link: messages to one peer and from it, each exactly once and in order, over a transport that may lose and repeat.

Each link has two lanes, so that CONTROL messages never wait behind DATA. On each lane the receiver grants credit in
bytes (an absolute count, as QUIC's MAX_DATA), so memory is bounded at both ends and a slow reader stops its writer.
Messages acknowledge and grant for the other way; where that is not enough a ping follows each fraction of a window. Its
pong tells which packets have arrived; others sent before the ping are sent again, which is exact where the transport
keeps order. Each message is for one incarnation of the peer, to which this link is bound first (`handshake`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ..testpoints import sometimes
from ..transport import PeerId
from ..wire.frames import Buffer, Counts, Frame, Lane, Packed, PeerMisbehaved, encode, pack, seal
from .congestion import CHUNK_BYTES_MIN, Pace
from .envelope import Envelope
from .flow import Flow
from .handshake import Binding
from .lane import Inbound, Outbound, Packet, Pulse, Room, counts_of
from .lost import PeerLost as PeerLost
from .outbox import Outbox

CONTROL_WINDOW_BYTES = 512 * 1024
_CONTROL_ROOM, _CONTROL_LIMITS = Room(CONTROL_WINDOW_BYTES), (CONTROL_WINDOW_BYTES, CONTROL_WINDOW_BYTES // 2)
CONTROL_QUEUE_MAX = 4096
BEGAN_ANEW = "it restarted, or gave this link up"


class Link:
    """One peer's end of a link: it sends messages to another peer and takes those from it."""

    def __init__(
        self,
        peer: PeerId,
        incarnation: int,
        *,
        clock: Callable[[], float],
        outbox: Outbox,
        flow: Flow,
        pace: Pace,
    ) -> None:
        """`incarnation`: a random number of 62 bits, not 0. `flow`: how much the peer may send. `pace`: congestion
        control, as the former link to the same peer left it."""
        self.peer, self.retransmitted = peer, 0
        self.lost: str | None = None
        self._clock, self._outbox, self._flow, self._pace, self.heard_at = clock, outbox, flow, pace, clock()
        self._out = {Lane.CONTROL: Outbound(CONTROL_WINDOW_BYTES), Lane.DATA: Outbound()}  # in the order of Counts
        self._in = {Lane.CONTROL: Inbound(lambda inbound: _CONTROL_ROOM, consumes=True), Lane.DATA: Inbound(flow.room)}
        self._binding, self._asking = Binding(incarnation), 0
        self._draining: list[asyncio.Future[None]] = []

    @property
    def incarnation(self) -> int:
        return self._binding.incarnation

    @property
    def towards(self) -> int:
        """The peer's incarnation that this link is bound to; 0 before the handshake."""
        return self._binding.towards

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a DATA payload that suit the path now, but at most as many as the receiver takes at once."""
        taken = self._out[Lane.DATA].first_limit_bytes
        return min(self._pace.chunk_bytes, max(taken, CHUNK_BYTES_MIN)) if taken else self._pace.chunk_bytes

    @property
    def bandwidth_Bps(self) -> float | None:
        return self._pace.bandwidth_Bps

    @property
    def round_trip_s(self) -> float | None:
        return self._binding.round_trip_s

    @property
    def busy(self) -> bool:
        """Whether a message waits to be sent or acknowledged."""
        return any(out.queue or out.in_flight for out in self._out.values())

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived and are not consumed yet."""
        return sum(inbound.received_bytes - inbound.consumed_bytes for inbound in self._in.values())

    def offer(self, channel: str, body: object, payload: Buffer) -> asyncio.Future[None] | None:
        """Send a message. Returns None if it was sent at once; else a future that is done when it was sent, and that
        withdraws the message if cancelled. Raises PeerLost, as the future does; ValueError if a receiver would refuse
        the message."""
        packet = self._enqueue(channel, body, payload)
        if packet.under_way:
            return None
        packet.posted = asyncio.get_running_loop().create_future()
        packet.posted.add_done_callback(lambda posted: self._withdraw(packet) if posted.cancelled() else None)
        return packet.posted

    def _withdraw(self, packet: Packet) -> None:
        queue = self._out[packet.packed.lane].queue
        if packet in queue:
            queue.remove(packet)
            if packet.header:  # with the counts in it, which count as told
                self.pulse()
            self._pump()

    def post(self, channel: str, body: object) -> None:
        """Queue a control message without waiting. Raises PeerLost when the link is lost, which it is from now on if
        4096 messages wait; ValueError if a receiver would refuse the message."""
        if len(self._out[Lane.CONTROL].queue) >= CONTROL_QUEUE_MAX:
            self.lose("it has not taken a message for too long")
        self._enqueue(channel, body, b"")

    async def drained(self) -> None:
        """Wait until the peer has acknowledged all messages sent to it, or is lost."""
        while self.busy:
            done = asyncio.get_running_loop().create_future()
            self._draining.append(done)
            self._ask_if_stopped()
            await done

    def _enqueue(self, channel: str, body: object, payload: Buffer) -> Packet:
        if self.lost is not None:
            raise PeerLost(self.peer, self.lost)
        packet = Packet(pack(body, len(payload), channel), payload)
        out = self._out[lane := packet.packed.lane]
        out.queue.append(packet)
        if len(out.queue) == 1 and self._binding.towards:
            self._pump_lane(lane, out)
            if not packet.under_way or self._draining:
                self._ask_if_stopped()
        return packet

    def _pump(self) -> None:
        if not self._binding.towards:
            return
        for lane, out in self._out.items():
            if out.queue:
                self._pump_lane(lane, out)
        self._ask_if_stopped()

    def _pump_lane(self, lane: Lane, out: Outbound) -> None:
        binding, now, sealed = self._binding, self._clock(), self._sealed
        window_bytes, ask_bytes = self._pace.limits() if lane is Lane.DATA else _CONTROL_LIMITS
        while (packet := out.sendable(window_bytes, now, sealed)) is not None:
            packet.after_ping = binding.last_ping
            self._outbox.post(self.peer, packet.header, packet.payload, packet.packed.channel)
            if packet.posted is not None and not packet.posted.done():
                packet.posted.set_result(None)
            if out.unasked_bytes >= ask_bytes:
                self._ask()
        if out.may_ask(known=lane is Lane.CONTROL or self._pace.bandwidth_Bps is not None, now=now):
            asyncio.get_running_loop().call_soon(self._ask)

    def _sealed(self, packed: Packed, seq: int) -> bytes:
        """The header of a message that is sent now."""
        counts = counts_of(*self._in.values(), by_message=True)
        return seal(packed, self.incarnation, self.towards, seq, counts)

    def _ask_if_stopped(self) -> None:
        """Keep a ping under way while sending is blocked on acknowledgements."""
        if not self._asking and any(out.in_flight and (out.queue or self._draining) for out in self._out.values()):
            self._ask()

    def _ask(self) -> None:
        if self.lost is not None:
            return
        for out in self._out.values():
            out.asked_bytes = out.posted_bytes
        self.pulse(ping=True)
        self._asking = self._binding.last_ping

    def arrived(self, frame: Frame, payload: Buffer, cost: int) -> Iterable[Envelope]:
        """Take a frame of this peer. Returns the messages that are now next in order, to be iterated at once. Raises
        PeerMisbehaved, here or while they are iterated, when the frame breaks the rules of the link; PeerLost when the
        peer has begun a new link: the caller then makes a new one too and hands it this frame."""
        incarnation, binding = frame.incarnation, self._binding
        if incarnation == 0:
            raise PeerMisbehaved("claims to be no incarnation")
        pulse = frame.message if isinstance(frame.message, Pulse) else None
        if pulse is not None and incarnation != binding.towards and binding.proves(pulse.pong):
            self._meet(frame)
        if incarnation == binding.towards:
            self.heard_at = self._clock()
        if not binding.both(incarnation, frame.towards):
            self._answer_unbound(incarnation, 0 if pulse is None else pulse.ping)
        elif pulse is not None:
            self._take_pulse(pulse, frame.counts)
        else:
            return self._take_message(frame, payload, cost)
        return ()

    def _meet(self, frame: Frame) -> None:
        """Bind to an incarnation that has proved to be alive, and therefore newer than the bound one."""
        self._binding.answered(frame.incarnation)
        if self.towards:
            self.lose(BEGAN_ANEW)
            raise PeerLost(self.peer, BEGAN_ANEW)
        if frame.towards in (0, self.incarnation):  # else it is bound to a past self of ours, and will have to let go
            self._binding.bind(frame.incarnation)
            for out, limit in zip(self._out.values(), frame.counts[2:], strict=True):
                out.granted(limit)

    def _answer_unbound(self, incarnation: int, ping: int) -> None:
        """Answer a ping and challenge its sender: until both are bound, neither can bind without a pong."""
        challenge = self._binding.may_challenge(incarnation, self._clock())
        if challenge or ping:
            self.pulse(ping=challenge, pong=ping)
            self._pump()

    def _take_message(self, frame: Frame, payload: Buffer, cost: int) -> Iterable[Envelope]:
        """The messages that are now next in order, of which `frame` is perhaps one."""
        self._take_counts(frame.counts, self._clock())
        give_back = self.consumed if frame.lane is Lane.DATA else None
        came = Envelope(self.peer, frame.message, payload, cost, frame.channel, give_back)
        due = self._in[frame.lane].take(frame.seq, came)
        if give_back is not None:
            self._flow.came(self)
        return due

    def consumed(self, cost: int) -> None:
        """Give the peer back the credit of a DATA message that was consumed here. It is told at once only if it may
        soon have to wait for credit."""
        inbound = self._in[Lane.DATA]
        inbound.consumed_bytes += cost
        if self.lost is None and inbound.is_short():
            self.pulse()

    def pulse(self, *, ping: bool = False, pong: int = 0) -> None:
        """Send a pulse: acknowledgements and credit of both lanes. `ping`: ask for the peer's; `pong`: see `Pulse`."""
        binding, now, counts = self._binding, self._clock(), counts_of(*self._in.values(), by_message=False)
        body = Pulse(binding.next_ping(now) if ping else 0, pong, now)
        header = encode(body, 0, incarnation=binding.incarnation, towards=binding.towards, seq=0, counts=counts)
        self._outbox.post(self.peer, header, b"", "")

    def beat(self, *, ask: bool) -> None:
        """Send the heartbeat of an interval: a ping if `ask`, or if a packet is in flight for longer than an interval;
        else a pulse without a question, and only if it has something new to tell."""
        if sum(out.stalled() for out in self._out.values()) or ask:
            self.pulse(ping=True)
        elif any(inbound.owes() for inbound in self._in.values()):
            self.pulse()

    def _take_pulse(self, pulse: Pulse, counts: Counts) -> None:
        waited_s = self._binding.waited_s(pulse.at_s, now := self._clock())
        self._take_counts(counts, now, waited_s)
        if self._binding.take_pong(pulse.pong, now):
            self._take_pong(pulse.pong)
        if pulse.ping:
            self.pulse(pong=pulse.ping)
        self._pump()

    def _take_counts(self, counts: Counts, now: float, waited_s: float | None = None) -> None:
        """Take the acknowledgements and the credit in a frame. `waited_s`: of a pulse; None: it is a message."""
        (control, data), by_message = self._out.values(), waited_s is None
        received, received_data, limit_bytes, data_limit_bytes = counts
        if received > control.next_seq or received_data > data.next_seq:
            raise PeerMisbehaved("acknowledged what was never sent")
        if by_message and self._asking:  # the pong is to acknowledge, as only pulses measure the bandwidth
            received = received_data = 0
        control.acknowledge(received, limit_bytes, now, by_message=by_message)
        rate = data.acknowledge(received_data, data_limit_bytes, now, by_message=by_message)
        if rate is not None:
            self._pace.measured(rate, self.round_trip_s, waited_s or 0.0, now)
        if by_message and (data.queue or control.queue):
            self._pump()
        if self._draining and not self.busy:
            self._wake_draining()

    def _take_pong(self, pong: int) -> None:
        if pong >= self._asking:
            self._asking = 0
        missing = [packet for out in self._out.values() for packet in out.in_flight if packet.after_ping < pong]
        for packet in missing:
            packet.after_ping, packet.acked_at = self._binding.last_ping, None
            self._outbox.post(self.peer, packet.header, packet.payload, "")
        self.retransmitted += len(missing)
        if missing:
            sometimes("a message was sent again")
            self._ask()

    def lose(self, why: str) -> None:
        """Give the link up: each message that still waits to be sent fails with PeerLost, those in flight are sent no
        more, and `drained` returns. Does nothing when the link is lost already."""
        if self.lost is not None:
            return
        self.lost = why
        if self._out[Lane.DATA].in_flight:
            self._pace.broke()
        for out in self._out.values():
            out.give_up(PeerLost(self.peer, why))
        for inbound in self._in.values():
            inbound.early.clear()
        self._wake_draining()

    def _wake_draining(self) -> None:
        waiting, self._draining = self._draining, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
