"""A link: messages to one peer and from it, each exactly once and in order, over a transport that may lose and repeat.

Two lanes share the way: CONTROL never waits behind DATA. On each lane the receiver grants credit in bytes
(`Pulse.limit`, an absolute count, as QUIC's MAX_DATA), so memory is bounded at both ends and a slow reader stops its
writer. Nothing is sent again on a guess: a ping follows the data on its way, and only when its pong says that what was
posted before the ping did not arrive is it posted again (exact on a way that keeps order, harmless on others).

Both ends first learn each other's incarnation (a number drawn anew for every `Link`), so that a peer that restarted,
or that gave the link up, never takes a message meant for its past self.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .transport import PeerId
from .wire import Buffer, Frame, Lane, PeerMisbehaved, encode, lane_of, message

_LANES = (Lane.CONTROL, Lane.DATA)
CONTROL_WINDOW_BYTES = 512 * 1024
CONTROL_QUEUE_MAX = 4096
WINDOW_BYTES_MIN, WINDOW_BYTES_START, WINDOW_BYTES_MAX = 64 * 1024, 256 * 1024, 8 << 20
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 16 * 1024, 1 << 20
HORIZON_S = 1.0
"""How much a link may have under way, in seconds of its measured bandwidth; a chunk is a quarter of that."""
_ACK_BYTES = 32 * 1024
_EARLY_MAX = 4096
_PINGS_KEPT = 8


class PeerLost(Exception):
    """A peer cannot be reached any more. Carries who, where and why."""

    def __init__(self, peer: PeerId, why: str) -> None:
        super().__init__(f"peer {peer:.12} is lost: {why}")
        self.peer, self.why = peer, why


@message(lane=Lane.LINK)
@dataclass(frozen=True, slots=True)
class Pulse:
    """Heartbeat, acknowledgement and credit in one. Absolute numbers: to lose or repeat one does no harm.

    received: per lane, all sequence numbers below this have arrived. limit: per lane, the byte count that may be sent
    up to. ping: asks for an answer (0: does not). pong: the ping this answers (0: none).
    """

    received: tuple[int, ...]
    limit: tuple[int, ...]
    ping: int
    pong: int


@dataclass(slots=True)
class _Packet:
    body: object
    payload: Buffer
    header: bytes = b""
    seq: int = 0
    under_way: bool = False
    posted: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        return len(self.header) + len(self.payload)


@dataclass(slots=True)
class _Out:
    queue: deque[_Packet] = field(default_factory=deque)
    in_flight: deque[_Packet] = field(default_factory=deque)
    next_seq: int = 0
    posted_bytes: int = 0
    acked_bytes: int = 0
    limit_bytes: int = 0


@dataclass(slots=True)
class _In:
    next_seq: int = 0
    received_bytes: int = 0
    consumed_bytes: int = 0
    early: dict[int, tuple[object, Buffer, int]] = field(default_factory=dict)
    told_received: int = 0
    told_limit: int = 0
    unacked_bytes: int = 0


class Link:
    """Both directions to one peer. `post` puts frames on their way; `deliver` takes (message, payload, credit)."""

    def __init__(
        self,
        peer: PeerId,
        incarnation: int,
        *,
        clock: Callable[[], float],
        post: Callable[[bytes, Buffer], None],
        deliver: Callable[[object, Buffer, int], None],
        credit_bytes: Callable[[], int],
    ) -> None:
        self.peer, self.incarnation = peer, incarnation
        self.towards = 0
        """The peer's incarnation; 0 until it is known."""
        self.lost: str | None = None
        self.watched = False
        self.rtt_s: float | None = None
        self.bandwidth_Bps: float | None = None
        self.retransmitted = 0
        self._clock, self._post, self._deliver, self._credit_bytes = clock, post, deliver, credit_bytes
        self.heard_at = clock()
        self._out = {lane: _Out() for lane in _LANES}
        self._in = {lane: _In() for lane in _LANES}
        self._retired: deque[int] = deque(maxlen=8)
        self._pings: dict[int, tuple[float, tuple[int, ...]]] = {}
        self._ping = 0
        self._window_bytes = WINDOW_BYTES_START
        self._probe: tuple[float, int] | None = None
        for lane in _LANES:
            self._out[lane].limit_bytes = WINDOW_BYTES_START

    @property
    def chunk_bytes(self) -> int:
        """How large a DATA payload suits this link now: a quarter of its window, a multiple of 16 KiB."""
        fitting = self._window_bytes // 4 // CHUNK_BYTES_MIN * CHUNK_BYTES_MIN
        return max(CHUNK_BYTES_MIN, min(CHUNK_BYTES_MAX, fitting))

    @property
    def busy(self) -> bool:
        """Whether something waits here to be sent or acknowledged."""
        return any(out.queue or out.in_flight for out in self._out.values())

    async def send(self, body: object, payload: Buffer) -> None:
        """Returns when the message is on its way, which waits for credit. Raises PeerLost."""
        packet = self._enqueue(body, payload)
        if packet.under_way:
            return
        packet.posted = asyncio.get_running_loop().create_future()
        await packet.posted

    def post(self, body: object) -> None:
        """Queue a control message without waiting. Raises PeerLost when the peer is lost or takes nothing any more."""
        if len(self._out[Lane.CONTROL].queue) >= CONTROL_QUEUE_MAX:
            self.lose("it has not taken a message for too long")
        self._enqueue(body, b"")

    def _enqueue(self, body: object, payload: Buffer) -> _Packet:
        if self.lost is not None:
            raise PeerLost(self.peer, self.lost)
        packet = _Packet(body, payload)
        out = self._out[lane_of(body)]
        out.queue.append(packet)
        if len(out.queue) == 1:
            self._pump()
        return packet

    def _pump(self) -> None:
        if not self.towards:
            return
        for lane, out in self._out.items():
            window = self._window_bytes if lane is Lane.DATA else CONTROL_WINDOW_BYTES
            while out.queue:
                packet = out.queue[0]
                if not packet.header:
                    packet.seq = out.next_seq
                    packet.header = encode(
                        packet.body,
                        len(packet.payload),
                        incarnation=self.incarnation,
                        towards=self.towards,
                        seq=packet.seq,
                    )
                under_way = out.posted_bytes - out.acked_bytes
                beyond_window = out.in_flight and under_way + packet.size > window
                if beyond_window or out.posted_bytes + packet.size > out.limit_bytes:
                    self._start_probe(lane, out)
                    break
                out.queue.popleft()
                out.next_seq += 1
                out.posted_bytes += packet.size
                out.in_flight.append(packet)
                packet.under_way = True
                self._post(packet.header, packet.payload)
                if packet.posted is not None and not packet.posted.done():
                    packet.posted.set_result(None)

    def _start_probe(self, lane: Lane, out: _Out) -> None:
        """A full window is the moment when acknowledged bytes per second are the link's bandwidth."""
        if lane is Lane.DATA and self._probe is None:
            self._probe = (self._clock(), out.acked_bytes)

    def arrived(self, frame: Frame, payload: Buffer, size: int) -> None:
        """Take a frame of this peer, `size` bytes with its header.

        Raises PeerMisbehaved when it breaks the rules of the link, PeerLost when its sender began a new link: the
        caller then makes a new one too and hands it this frame.
        """
        if frame.incarnation in self._retired or frame.incarnation == 0:
            return
        if frame.incarnation != self.towards:
            self._meet(frame.incarnation)
        self.heard_at = self._clock()
        if frame.towards not in (0, self.incarnation) or (frame.towards == 0 and frame.lane is not Lane.LINK):
            self.pulse()
            return
        if isinstance(frame.message, Pulse):
            self._take_pulse(frame.message, current=frame.towards == self.incarnation)
        else:
            self._take_message(frame, payload, size)

    def _meet(self, incarnation: int) -> None:
        if self.towards:
            self._retired.append(self.towards)
            if any(i.next_seq for i in self._in.values()) or any(out.acked_bytes for out in self._out.values()):
                self.lose("it restarted, or gave this link up")
                raise PeerLost(self.peer, self.lost or "")
            self._rewind()
        self.towards = incarnation
        self._pump()

    def _rewind(self) -> None:
        """Nothing was exchanged with the incarnation that is gone: what was posted to it starts anew."""
        for lane, out in self._out.items():
            for packet in reversed(out.in_flight):
                packet.header, packet.under_way = b"", False
                out.queue.appendleft(packet)
            self._out[lane] = _Out(queue=out.queue, limit_bytes=WINDOW_BYTES_START)
        self._probe = None

    def _take_message(self, frame: Frame, payload: Buffer, size: int) -> None:
        inbound = self._in[frame.lane]
        ahead = frame.seq - inbound.next_seq
        if ahead < 0 or frame.seq in inbound.early:
            return
        inbound.received_bytes += size
        if ahead > _EARLY_MAX or inbound.received_bytes > self._limit(frame.lane) + CHUNK_BYTES_MAX:
            raise PeerMisbehaved(f"sent {inbound.received_bytes} bytes on {frame.lane.name}, beyond its credit")
        inbound.early[frame.seq] = (frame.message, payload, size)
        while (item := inbound.early.pop(inbound.next_seq, None)) is not None:
            inbound.next_seq += 1
            inbound.unacked_bytes += item[2]
            if frame.lane is Lane.CONTROL:
                inbound.consumed_bytes += item[2]
            self._deliver(*item)
        if inbound.unacked_bytes >= _ACK_BYTES:
            self.pulse()

    def consumed(self, size: int) -> None:
        """A DATA message of `size` bytes was used up: its credit goes back to the sender."""
        inbound = self._in[Lane.DATA]
        inbound.consumed_bytes += size
        if self._limit(Lane.DATA) - inbound.told_limit >= self._credit_bytes() // 4:
            self.pulse()

    def _limit(self, lane: Lane) -> int:
        inbound = self._in[lane]
        window = self._credit_bytes() if lane is Lane.DATA else CONTROL_WINDOW_BYTES
        return max(inbound.told_limit, inbound.consumed_bytes + window)

    def pulse(self, *, ping: bool = False, pong: int = 0) -> None:
        """Tell the other side where we stand; with `ping`, ask where it stands."""
        number = 0
        if ping:
            self._ping += 1
            number = self._ping
            self._pings[number] = (self._clock(), tuple(self._out[lane].next_seq for lane in _LANES))
            if len(self._pings) > _PINGS_KEPT:
                del self._pings[min(self._pings)]
        for lane in _LANES:
            inbound = self._in[lane]
            inbound.told_received, inbound.told_limit, inbound.unacked_bytes = inbound.next_seq, self._limit(lane), 0
        body = Pulse(
            tuple(self._in[lane].next_seq for lane in _LANES),
            tuple(self._in[lane].told_limit for lane in _LANES),
            number,
            pong,
        )
        self._post(encode(body, 0, incarnation=self.incarnation, towards=self.towards, seq=0), b"")

    @property
    def owes_pulse(self) -> bool:
        return any(i.told_received != i.next_seq or self._limit(lane) > i.told_limit for lane, i in self._in.items())

    def _take_pulse(self, pulse: Pulse, *, current: bool) -> None:
        if len(pulse.received) != len(_LANES) or len(pulse.limit) != len(_LANES):
            raise PeerMisbehaved("sent a pulse for another number of lanes")
        if current:
            for lane, received, limit in zip(_LANES, pulse.received, pulse.limit, strict=True):
                self._acknowledge(lane, received, limit)
            if pulse.pong in self._pings:
                self._take_pong(pulse.pong)
        if pulse.ping:
            self.pulse(pong=pulse.ping)
        if current:
            self._pump()

    def _acknowledge(self, lane: Lane, received: int, limit: int) -> None:
        out = self._out[lane]
        if received > out.next_seq:
            raise PeerMisbehaved("acknowledged what was never sent")
        while out.in_flight and out.in_flight[0].seq < received:
            out.acked_bytes += out.in_flight.popleft().size
        out.limit_bytes = max(out.limit_bytes, limit)
        if lane is Lane.DATA and self._probe is not None and out.acked_bytes > self._probe[1]:
            elapsed = max(self._clock() - self._probe[0], 1e-6)
            self._measured((out.acked_bytes - self._probe[1]) / elapsed)
            self._probe = None

    def _measured(self, sample_Bps: float) -> None:
        before = self.bandwidth_Bps
        self.bandwidth_Bps = sample_Bps if before is None else max(sample_Bps, 0.75 * before + 0.25 * sample_Bps)
        fitting = int(self.bandwidth_Bps * HORIZON_S)
        # A window at most doubles at a time: one lucky sample must not flood a slow link.
        self._window_bytes = max(WINDOW_BYTES_MIN, min(fitting, 2 * self._window_bytes, WINDOW_BYTES_MAX))

    def _take_pong(self, pong: int) -> None:
        sent_at, marks = self._pings.pop(pong)
        sample = self._clock() - sent_at
        self.rtt_s = sample if self.rtt_s is None else 0.875 * self.rtt_s + 0.125 * sample
        for lane, mark in zip(_LANES, marks, strict=True):
            for packet in self._out[lane].in_flight:
                if packet.seq < mark:
                    self.retransmitted += 1
                    self._post(packet.header, packet.payload)

    def lose(self, why: str) -> None:
        """Give the link up: whoever waits to send on it gets PeerLost."""
        if self.lost is not None:
            return
        self.lost = why
        for out in self._out.values():
            for packet in out.queue:
                if packet.posted is not None and not packet.posted.done():
                    packet.posted.set_exception(PeerLost(self.peer, why))
            out.queue.clear()
            out.in_flight.clear()
