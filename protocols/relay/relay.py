"""A relay: it carries streams between two peers that cannot be dialled, over the links that they have to it.

It can neither read the bytes that it passes on nor change them unnoticed. It carries for members only, and for each of
them a bounded number of streams, each with a bounded number of bytes under way, and, if a rate is given, at that rate
at most.

Cost: the bytes that two peers exchange take this peer's down-link and its up-link once each, and about 60 bytes more
for each piece of at most 16 KiB. A stream has at most 256 KiB under way in each direction.
On failure: when one end is lost, the other is told that the stream is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..testpoints import sometimes
from ..transport import PeerId
from ..wire.frames import Buffer, PeerMisbehaved, in_words
from .messages import PIECE_BYTES_MAX, WINDOW_BYTES, Called, Carry, Over, Piece, Taken
from .stream import send
from .throttle import Throttle

STREAMS_MAX, STREAMS_OF_ONE_MAX = 512, 128
"""The most streams that a relay carries in all, and of one caller."""


@dataclass(slots=True, eq=False)
class _Leg:
    """One half of a stream: its part on the link to `peer`. `came`: bytes from that peer; `passed`: bytes to it;
    `taken`: of these, the bytes that it has taken."""

    peer: PeerId
    number: int
    caller: PeerId
    came: int = 0
    passed: int = 0
    taken: int = 0


class Relay:
    """One peer's part as a relay: carries the streams for which members that cannot be dialled ask it. `outbound`
    returns these members. `rate_Bps`: the most bytes a second that it carries from each of them; None: no limit.
    `carried_bytes`: the bytes that it has passed on so far."""

    def __init__(
        self, channel: Channel, outbound: Callable[[], Container[PeerId]], rate_Bps: float | None = None
    ) -> None:
        self._channel, self._outbound, self._rate_Bps = channel, outbound, rate_Bps
        self._others: dict[_Leg, _Leg] = {}
        """For each leg: the other leg of its stream."""
        self._legs: dict[tuple[PeerId, int], _Leg] = {}
        """By peer and number."""
        self._throttles: dict[PeerId, Throttle] = {}
        self._last = 1
        self.carried_bytes = 0
        endpoint = channel.endpoint
        endpoint.on_lost.append(lambda peer, why: self._lost(peer))
        endpoint.on_ended.append(self._lost)
        channel.on(Carry, self._on_carry)
        channel.on(Piece, self._on_piece)
        channel.on(Taken, self._on_taken)
        channel.on(Over, self._on_over)

    def _on_carry(self, envelope: Envelope) -> None:
        caller, carry = envelope.sender, envelope.message
        if (caller, carry.stream) in self._legs or carry.stream % 2:
            raise PeerMisbehaved(f"began a stream with the number {carry.stream}, which is not free")
        if why := self._why_not(caller, carry.to):
            self._channel.post(caller, Over(carry.stream, in_words(why)))
            return
        self._channel.endpoint.retry(carry.to)  # it may be lost, and have connected again
        self._last += 2
        near, far = _Leg(caller, carry.stream, caller), _Leg(carry.to, self._last, caller)
        self._others |= {near: far, far: near}
        self._legs |= {(leg.peer, leg.number): leg for leg in (near, far)}
        self._channel.post(far.peer, Called(far.number, caller))
        sometimes("a relay carried a stream")

    def _why_not(self, caller: PeerId, to: PeerId) -> str:
        """Why the relay refuses to carry a stream of `caller` to `to`; "": it carries it."""
        outbound = self._outbound()
        if caller not in outbound or to not in outbound or caller == to:
            return "streams are carried between two members that cannot be dialled"
        if (why := self._channel.endpoint.trouble(to)) is not None:
            return f"the relay cannot reach it: {why}"
        of_one = Counter(leg.caller for leg in self._legs.values())[caller] // 2
        if of_one >= STREAMS_OF_ONE_MAX or len(self._legs) >= 2 * STREAMS_MAX:
            return f"the relay carries {STREAMS_OF_ONE_MAX} streams of one peer and {STREAMS_MAX} of all, no more"
        return ""

    def _on_piece(self, envelope: Envelope) -> None:
        if (leg := self._of(envelope)) is None:
            return
        leg.came += (size := len(envelope.payload))
        if leg.came - self._others[leg].taken > WINDOW_BYTES + PIECE_BYTES_MAX:
            self._end(leg, "it sent more than its window")
            raise PeerMisbehaved(f"sent more of a stream than its window of {WINDOW_BYTES} bytes")
        if self._rate_Bps is None:
            self._pass_on(leg, envelope.payload)
            return
        throttle = self._throttles.setdefault(leg.peer, Throttle(self._rate_Bps))
        throttle.take(size, lambda: self._pass_on(leg, envelope.payload))

    def _pass_on(self, leg: _Leg, data: Buffer) -> None:
        if (to := self._others.get(leg)) is None:
            return  # it has ended while these bytes waited
        to.passed += len(data)
        self.carried_bytes += len(data)
        try:
            send(self._channel, to.peer, Piece(to.number), data)
        except PeerLost as lost:
            self._end(leg, lost.why)

    def _on_taken(self, envelope: Envelope) -> None:
        if (leg := self._of(envelope)) is None:
            return
        if (total := envelope.message.total) > leg.passed:
            raise PeerMisbehaved("took more of a stream than was sent")
        leg.taken, back = max(leg.taken, total), self._others[leg]
        self._channel.post(back.peer, Taken(back.number, leg.taken))

    def _on_over(self, envelope: Envelope) -> None:
        if (leg := self._legs.get((envelope.sender, envelope.message.stream))) is not None:
            self._end(leg, envelope.message.why, tell=False)

    def _of(self, envelope: Envelope) -> _Leg | None:
        """The leg that a message belongs to. None if there is none; the sender is then told that."""
        leg = self._legs.get((envelope.sender, envelope.message.stream))
        if leg is None:
            self._channel.post(envelope.sender, Over(envelope.message.stream, "the relay has no such stream"))
        return leg

    def _lost(self, peer: PeerId) -> None:
        for leg in [leg for leg in self._legs.values() if leg.peer == peer]:
            self._end(leg, "the relay has lost its other end", tell=False)
        self._throttles.pop(peer, None)

    def _end(self, leg: _Leg, why: str, *, tell: bool = True) -> None:
        """End the stream of `leg`, and tell the peer at its other end; if `tell`, also the peer at this end."""
        if (other := self._others.pop(leg, None)) is None:
            return
        del self._others[other], self._legs[leg.peer, leg.number], self._legs[other.peer, other.number]
        for one in (leg, other) if tell else (other,):
            self._channel.post(one.peer, Over(one.number, in_words(why)))
