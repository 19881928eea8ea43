"""A transport that slows its peer's traffic down to a given link: a real run is then as slow, and its peers as distant,
as in a simulation of that link.

As in a simulation (`sims.world.network`), a message occupies its sender's up-link and its receiver's down-link for
`link_bytes` / bandwidth each, at the same time, and the latency between two peers is the greater of their two
latencies. The sender tells the receiver its own link (`ShapedTo`); a peer that tells nothing counts as infinitely fast
and near. The credit of the links above bounds the bytes that wait here; frames beyond the bound are dropped, as by a
router. Frames that go by a pipe are not shaped here, but on their way to the relay and from it.
"""

from __future__ import annotations

import random

from ..link_spec import LinkSpec, link_bytes
from ..transport import PeerId, Transport, wire_bytes
from ..wire.frames import Buffer, encode
from .delay_queue import Delayed, Waiting
from .down_link import DownLink
from .path import ShapedTo, Way, behind
from .wrapped import Wrapped

_WAYS_MAX = 1 << 15
_LINGER_S = 0.3
"""Frames that begin to leave within this time after closing are still sent, as from a socket."""


class Shaped(Wrapped):
    """The transport `inner`, slowed down to the link `link`."""

    machine = ""
    """Empty: a shaped peer shares no memory, because that would bypass its link."""

    def __init__(self, inner: Transport, link: LinkSpec, rng: random.Random, *, encrypted: bool) -> None:
        """`encrypted`: whether `inner` encrypts. `rng` draws the jitter."""
        super().__init__(inner)
        self._link, self._rng, self._encrypted = link, rng, encrypted
        told = ShapedTo(link.bandwidth_Bps, link.latency_s, link.jitter_s)
        self._told = encode(told, 0, incarnation=0, towards=0, seq=0)
        self._ways: dict[PeerId, Way] = {}
        self._leaving, self._coming = Waiting(), Waiting()
        self._up_free_s, self._down_link = 0.0, DownLink(link.receives_Bps)

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        if self._by_pipe(peer):
            return self._inner.post(peer, header, payload)
        way, told = self._way(peer), 0
        if not way.told:
            told = self._send(way, peer, self._told, b"")
            way.told = told > 0
        return told + self._send(way, peer, header, payload)

    def _send(self, way: Way, peer: PeerId, header: bytes, payload: Buffer) -> int:
        if not self._leaving.takes(header, payload):
            return 0
        size = wire_bytes(len(header), len(payload), encrypted=self._encrypted)
        start_s = max(self._clock(), self._up_free_s)
        self._up_free_s = sent_s = start_s + link_bytes(size) / self._link.bandwidth_Bps
        way.left_s = behind(sent_s + self._delay_s(self._link.latency_s, self._link.jitter_s), way.left_s)
        self._leaving.put(way.left_s, self._leave, Delayed(peer, header, payload, size, start_s, way.left_s))
        return size

    def _leave(self, one: Delayed) -> None:
        self._inner.post(one.peer, bytes(one.header), one.payload)

    def _arrived(self, sender: PeerId, header: Buffer, payload: Buffer, size: int) -> None:
        """A frame's last byte has arrived. Its first byte arrived earlier by the time on the sender's up-link. Both are
        delayed by the difference between this link's latency and the sender's."""
        if self._by_pipe(sender):
            self._arrivals.frames(sender, header, payload, size)
            return
        if not self._coming.takes(header, payload):
            return
        way, now = self._way(sender), self._clock()
        if not len(payload):
            way.learn(header)
        theirs = way.theirs
        last_s = now + self._delay_s(self._link.latency_s - theirs.latency_s, self._link.jitter_s - theirs.jitter_s)
        first_s = max(last_s - link_bytes(size) / theirs.up_Bps, way.came_s)
        way.came_s = last_s = behind(last_s, first_s)
        one = Delayed(sender, header, payload, size, first_s, last_s)
        if first_s <= now:
            self._enter_down_link(one)
        else:
            self._coming.put(first_s, self._enter_down_link, one)

    def _enter_down_link(self, one: Delayed) -> None:
        way, through_s = self._way(one.peer), self._down_link.take(one.first_s, one.size)
        way.through_s = behind(max(one.last_s, through_s), way.through_s)
        self._coming.put(way.through_s, self._hand_over, one)

    def _hand_over(self, one: Delayed) -> None:
        self._arrivals.frames(one.peer, one.header, one.payload, one.size)

    def _delay_s(self, latency_s: float, jitter_s: float) -> float:
        return max(0.0, latency_s) + (self._rng.uniform(0.0, jitter_s) if jitter_s > 0 else 0.0)

    def _reconnected(self, peer: PeerId) -> None:
        """Send `ShapedTo` again: it may have been lost, or received by a former process of the peer."""
        self._way(peer).told = False
        self._arrivals.reconnected(peer)

    def _way(self, peer: PeerId) -> Way:
        way = self._ways.get(peer)
        if way is None:
            if len(self._ways) >= _WAYS_MAX:
                del self._ways[next(iter(self._ways))]
            way = self._ways[peer] = Way()
        return way

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        """Drop the frames that wait for `peer`, and hang up; the next frame to it is preceded by this peer's link
        (`ShapedTo`) again. The link that `peer` has told of is kept: `peer` may not notice that the connection ended,
        and then would not tell its link again. `call`: as for `Transport.hang_up`."""
        self._way(peer).told = False
        for one in [one for one in self._leaving.all if one.peer == peer]:
            self._leaving.take(one)
        self._inner.hang_up(peer, call=call)

    def close(self) -> None:
        for one in list(self._leaving.all):
            self._leaving.take(one)
            if one.first_s <= self._clock() + _LINGER_S:
                self._leave(one)
        for one in list(self._coming.all):
            self._coming.take(one)
        self._inner.close()
