"""A virtual network. Every peer has an up-link and a down-link, each with a bandwidth. Every way, which is a directed
pair of peers, has a latency with jitter.

Frames of one way keep their order, as on TCP, unless `noise` reorders them. A frame occupies its sender's up-link and
its receiver's down-link for `link_bytes` / bandwidth seconds each, at the same time (cut-through), so that many senders
share one receiver's down-link. Between sites with a trunk it occupies the trunk too. Each link serves frames in the
order in which their first bytes reach it, so a frame that is still far away delays no other. Frames in flight are lost
when their way is cut or their receiver closes. Frames that wait for an up-link when their sender closes are lost,
unless they leave soon after (`Network.close`). Every way draws from a random generator of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from functools import cached_property
from typing import TypeVarTuple

from ...protocols.link_spec import LinkSpec, link_bytes
from ...protocols.transport import Arrivals, PeerId, wire_bytes
from ...protocols.wire.frames import Buffer
from ..scenarios.noise import QUIET, Noise
from .doors import Doors
from .loop import VirtualLoop
from .machine import MACHINE
from .priorities import Priorities
from .ways import Frame, Port, Way

Ts = TypeVarTuple("Ts")
LINGER_S = 0.3
"""Seconds after the closing of a socket during which its queued frames still leave, as in
`protocols.zeromq.transport`."""


class Network:
    """Connects `SimulatedTransport`s. `link`: the link of peers without one of their own; `noise`: the present random
    faults of frames. To be used on a `VirtualLoop`."""

    def __init__(self, link: LinkSpec, seed: int, noise: Noise = QUIET) -> None:
        self.link, self.noise = link, noise
        self.links: dict[PeerId, LinkSpec] = {}
        """Peer -> its link, for peers that have not the common `link`."""
        self.site: dict[PeerId, str] = {}
        self.trunks: dict[frozenset[str], LinkSpec] = {}
        """Two sites -> the link that all frames between them share. Other sites are connected by the peers' own links
        alone."""
        self.delivered = 0
        self.happened: Counter[str] = Counter()
        """Number of frames that were lost, doubled, overtaken or garbled by noise, or dropped on a cut way or for want
        of a connection."""
        self.carried: Counter[tuple[PeerId, PeerId]] = Counter()
        """Way -> bytes sent on it."""
        self.before: dict[int, Callable[[], None]] = {}
        """Number of a delivery, counted from 1 -> function to call right before it, e.g. to crash a peer."""
        self.after: list[Callable[[PeerId], None]] = []
        """Functions that are called with the receiver after every delivery."""
        self.seen: list[Callable[[Frame, bool], None]] = []
        """Functions that are called with (frame, True) right after a frame was sent on a way that is not cut, and with
        (frame, False) right after each time that it was received."""
        self.priorities: Priorities | None = None
        self.doors = Doors()
        self._seed = seed
        self._cut: Counter[tuple[PeerId, PeerId]] = Counter()
        self._hash = hashlib.blake2b(digest_size=16)
        self._ports: dict[PeerId, Port] = {}
        self._ways: dict[tuple[PeerId, PeerId], Way] = {}
        self._ties: dict[PeerId, Callable[[], float]] = {}
        self._trunk_free_s: dict[tuple[str, str], float] = {}

    @cached_property
    def _loop(self) -> VirtualLoop:
        """The virtual loop. It is kept, because asking asyncio for the running loop takes longer than all other work
        for a frame."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "a virtual network needs virtual time"
        return loop

    @property
    def digest(self) -> str:
        """A hash over all deliveries so far, as hexadecimal text; equal for equal runs."""
        return self._hash.hexdigest()

    def open(self, peer: PeerId, arrivals: Arrivals) -> None:
        """Open the port of `peer`, whose code is the running one; `arrivals` receives its frames. Raises OSError when
        it is open already."""
        if peer in self._ports:
            raise OSError(f"{peer} is open already")
        machine = MACHINE.get()
        self._ports[peer] = Port(arrivals, machine, copy_context() if machine is None else machine.context)

    def close(self, peer: PeerId, *, linger_s: float = 0.0) -> None:
        """Close the port of `peer`: it neither sends nor receives any more. Queued frames still leave for `linger_s`
        seconds."""
        if (port := self._ports.pop(peer, None)) is not None:
            port.sends_until_s = self._loop.time() + linger_s
        self.doors.close(peer)

    def cut(self, sender: PeerId, to: PeerId) -> None:
        """Cut the way from `sender` to `to`; the other direction stays as it is. A way that was cut twice needs `join`
        twice."""
        self._cut[sender, to] += 1

    def join(self, sender: PeerId, to: PeerId) -> None:
        """Undo one `cut` of the way from `sender` to `to`."""
        self._cut[sender, to] -= 1

    def clog(self, sender: PeerId, to: PeerId, until_s: float) -> None:
        """Hold up the frames from `sender` to `to`: those that have yet to enter the down-link arrive at the
        virtual time `until_s` at the earliest."""
        way = self._way(sender, to)
        way.clogged_until_s = max(way.clogged_until_s, until_s)

    def can_be_dialled(self, peer: PeerId) -> bool:
        """Whether others can dial `peer`."""
        return peer not in self.doors.outbound

    def joined(self, caller: PeerId, called: PeerId) -> bool:
        """Whether `caller`, which cannot be dialled, has a connection to `called`."""
        return self.doors.joined(caller, called, self._ports)

    def carry(self, sender: PeerId, to: PeerId, header: bytes, payload: Buffer) -> int:
        """Send a frame from `sender` to `to`. Returns its bytes on the wire, also if it will be lost; 0: `to` cannot be
        dialled, and has no connection to `sender`."""
        if to in self.doors.outbound and not self.joined(to, sender):
            self.happened["not joined"] += 1
            return 0
        size = wire_bytes(len(header), len(payload), encrypted=True)
        if (port := self._ports.get(sender)) is None:
            return size
        self.carried[sender, to] += size
        if self._cut and self._cut[sender, to] > 0:
            self.happened["cut"] += 1
            return size
        way, up, now = self._way(sender, to), self.links.get(sender, self.link), self._loop.time()
        start_s = now if now > port.up_free_s else port.up_free_s
        takes_bytes = link_bytes(size)
        port.up_free_s = sent_s = start_s + takes_bytes / up.bandwidth_Bps
        frame = Frame(sender, to, header, payload, size, takes_bytes, way, way.connection, port, start_s)
        latency_s = self._latency(way, up, self.links.get(to, self.link))
        if self.priorities is not None:
            latency_s += self.priorities.extra_s(sender, to, header)
        if not (self.trunks and self._takes_trunk(frame, sent_s, latency_s)):
            self._fly(frame, start_s + latency_s, sent_s + latency_s)
        for see in self.seen:
            see(frame, True)
        return size

    def _takes_trunk(self, frame: Frame, sent_s: float, latency_s: float) -> bool:
        """Send a frame by the trunk between the sites of its ends. Returns whether there is one."""
        ends = self.site.get(frame.sender, ""), self.site.get(frame.to, "")
        trunk = None if ends[0] == ends[1] else self.trunks.get(frozenset(ends))
        if trunk is None:
            return False
        latency_s += self._latency(frame.way, trunk, trunk)
        self._at(frame.start_s, frame.to, self._enter_trunk, frame, ends, sent_s, latency_s)
        return True

    def _latency(self, way: Way, one: LinkSpec, other: LinkSpec) -> float:
        if one is other:
            latency_s, jitter_s = one.latency_s, one.jitter_s
        else:
            latency_s, jitter_s = max(one.latency_s, other.latency_s), max(one.jitter_s, other.jitter_s)
        return latency_s + way.chance.uniform(0.0, jitter_s) if jitter_s else latency_s

    def _at(self, when: float, to: PeerId, do: Callable[[*Ts], object], *what: *Ts) -> None:
        """Call `do` at the virtual time `when`, outside any machine, so that no machine's fault delays it. The order
        among events of the same time is drawn from a generator for the receiver `to`."""
        tie = self._ties.get(to)
        if tie is None:
            tie = self._ties[to] = random.Random(f"{self._seed} line to {to}").random
        self._loop.happen(when, tie(), do, *what)

    def _enter_trunk(self, frame: Frame, ends: tuple[str, str], sent_s: float, latency_s: float) -> None:
        if frame.start_s > frame.source.sends_until_s:
            return
        entered_s = max(frame.start_s, self._trunk_free_s.get(ends, 0.0))
        left_s = entered_s + frame.link_bytes / self.trunks[frozenset(ends)].bandwidth_Bps
        self._trunk_free_s[ends] = left_s
        self._fly(frame, entered_s + latency_s, max(sent_s, left_s) + latency_s)

    def _fly(self, frame: Frame, first_s: float, last_s: float) -> None:
        """Let the first and the last byte of the frame reach the down-link at these virtual times, or later if earlier
        frames of this way are still before it."""
        way = frame.way
        if way.source is not frame.source:
            way.source, way.entered_s = frame.source, 0.0
        first_s = first_s if first_s > way.entered_s else way.entered_s
        way.entered_s = last_s = last_s if last_s > first_s else math.nextafter(first_s, math.inf)
        self._at(first_s, frame.to, self._enter_down_link, frame, first_s, last_s)

    def _enter_down_link(self, frame: Frame, first_s: float, last_s: float) -> None:
        if frame.start_s > frame.source.sends_until_s:
            return
        there = self._ports.get(frame.to)
        takes_s = frame.link_bytes / self.links.get(frame.to, self.link).receives_Bps
        if there is None:
            through_s = first_s + takes_s
        else:
            there.down_free_s = through_s = takes_s + max(first_s, there.down_free_s)
        when = max(last_s, through_s, frame.way.clogged_until_s)
        if self.noise is QUIET:
            self._in_order(when, frame, there)
        else:
            self._noisily(when, frame, there)

    def _in_order(self, when: float, frame: Frame, there: Port | None, *, garbled: bool = False) -> None:
        way = frame.way
        if way.there is not there:
            way.last_s, way.there = (way.last_s if way.there is None else 0.0), there
        way.last_s = when = when if when > way.last_s else math.nextafter(way.last_s, math.inf)
        self._at(when, frame.to, self._arrive, frame, there, garbled)

    def _noisily(self, when: float, frame: Frame, there: Port | None) -> None:
        noise, way, under_way_s = self.noise, frame.way, when - frame.start_s
        garbled = self._chance(way, noise.corrupt, "garbled")
        if self._chance(way, noise.reorder, "overtaken"):
            self._at(when + way.chance.uniform(0, under_way_s), frame.to, self._arrive, frame, there, garbled)
        elif not self._chance(way, noise.loss, "lost"):
            self._in_order(when, frame, there, garbled=garbled)
        if self._chance(way, noise.duplicate, "doubled"):
            self._at(when + way.chance.uniform(0, under_way_s), frame.to, self._arrive, frame, there, garbled)

    def _way(self, sender: PeerId, to: PeerId) -> Way:
        way = self._ways.get((sender, to))
        if way is None:
            way = self._ways[sender, to] = Way(f"{sender}>{to}".encode(), random.Random(f"{self._seed} {sender}>{to}"))
        return way

    def _chance(self, way: Way, probability: float, what: str) -> bool:
        if probability == 0 or way.chance.random() >= probability:
            return False
        self.happened[what] += 1
        return True

    def _arrive(self, frame: Frame, there: Port | None, garbled: bool) -> None:
        """Handle the arrival of a frame's last byte. `there`: the receiver's port that was open when the first byte
        arrived. If another process of the peer has opened a port since, the frame is dropped."""
        if self._cut and self._cut[frame.sender, frame.to] > 0:
            self.happened["cut"] += 1
            return
        if (fault := self.before.pop(self.delivered + 1, None)) is not None:
            fault()
        port = self._ports.get(frame.to)
        if port is None or (there is not None and port is not there):
            return
        if port.machine is None or port.machine.prompt:
            port.context.run(self._deliver, frame, port, garbled)
        else:
            self._loop.call_soon(self._deliver, frame, port, garbled, context=port.context)

    def _deliver(self, frame: Frame, port: Port, garbled: bool) -> None:
        sender, to, way = frame.sender, frame.to, frame.way
        if self._ports.get(to) is not port or not self.doors.lets_in(to, sender) or frame.connection != way.connection:
            return
        if garbled:
            self._break(way, sender, to)
            return
        if sender in self.doors.outbound and self.doors.call(sender, to, (frame.source, port)):
            port.arrivals.reconnected(sender)
        self.delivered += 1
        told = struct.pack("<dI", self._loop.time(), zlib.crc32(frame.payload))  # to hash all of it would take longer
        self._hash.update(b"".join((told, way.name, frame.header)))
        port.arrivals.frames(sender, frame.header, frame.payload, frame.size)
        for look in self.after:
            look(to)
        for see in self.seen:
            see(frame, False)

    def _break(self, way: Way, sender: PeerId, to: PeerId) -> None:
        """Break the connection of this way, which loses the frames in flight on it. It is made again at once, and the
        sender's endpoint is told so."""
        way.connection += 1
        port = self._ports.get(sender)
        if port is not None:
            latency_s = self.links.get(sender, self.link).latency_s
            self._loop.call_at(self._loop.time() + latency_s, port.arrivals.reconnected, to, context=port.context)
