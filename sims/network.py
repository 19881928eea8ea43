"""A virtual network: every peer has an up-link and a down-link with a bandwidth, and every way a latency with jitter.

Frames of one way keep their order, as on TCP, unless `noise` lets one be overtaken. A message occupies its sender's
up-link and its receiver's down-link for `link_bytes` / bandwidth each, at the same time (cut-through), so many senders
share one receiver's down-link; between sites with a trunk it occupies that too. What is under way when its way is cut,
or its receiver closed, is lost. Every way draws its chance from a generator of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Collection
from contextvars import Context
from dataclasses import dataclass
from typing import NamedTuple

from ..protocols.transport import Arrivals, PeerId, wire_bytes
from ..protocols.wire import Buffer
from .links import QUIET, LinkSpec, Noise, link_bytes
from .machine import MACHINE


@dataclass(slots=True)
class _Port:
    """Where a peer that is open takes frames, and in whose name."""

    arrivals: Arrivals
    context: Context | None


@dataclass(slots=True)
class _Way:
    """From one peer to another. `connection`: how often it was made; frames of a broken one are lost."""

    chance: random.Random
    last_s: float = 0.0
    connection: int = 0
    clogged_until_s: float = 0.0


class _Frame(NamedTuple):
    sender: PeerId
    to: PeerId
    header: bytes
    payload: Buffer
    size: int
    connection: int
    garbled: bool


class Network:
    """Connects `SimulatedTransport`s. `digest` is a hash over every delivery: equal runs have equal digests."""

    def __init__(self, link: LinkSpec, seed: int, noise: Noise = QUIET) -> None:
        self.link, self.noise = link, noise
        self.links: dict[PeerId, LinkSpec] = {}
        """Peers whose connection is not the common `link`."""
        self.site: dict[PeerId, str] = {}
        self.trunks: dict[frozenset[str], LinkSpec] = {}
        """What two sites share between them; none: the peers' own links are all there is."""
        self.delivered = 0
        self.happened: Counter[str] = Counter()
        """How often a frame was lost, doubled, overtaken or garbled by chance, or dropped on a way that was cut."""
        self.carried: Counter[tuple[PeerId, PeerId]] = Counter()
        """Bytes sent, by way."""
        self.before: dict[int, Callable[[], None]] = {}
        """What to do right before the delivery of that number, counted from 1: crash somebody, cut a way."""
        self.after: list[Callable[[PeerId], None]] = []
        """What to do after every delivery, with the receiver."""
        self._seed = seed
        self._cut: Counter[tuple[PeerId, PeerId]] = Counter()
        self._hash = hashlib.blake2b(digest_size=16)
        self._ports: dict[PeerId, _Port] = {}
        self._admitted: dict[PeerId, set[PeerId]] = {}
        self._ways: dict[tuple[PeerId, PeerId], _Way] = {}
        self._up_free_s: dict[PeerId, float] = {}
        self._down_free_s: dict[PeerId, float] = {}
        self._trunk_free_s: dict[tuple[str, str], float] = {}

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def open(self, peer: PeerId, arrivals: Arrivals) -> None:
        if peer in self._ports:
            raise OSError(f"{peer} is open already")
        machine = MACHINE.get()
        self._ports[peer] = _Port(arrivals, None if machine is None else machine.context)

    def close(self, peer: PeerId) -> None:
        """From now on `peer` neither sends nor receives."""
        self._ports.pop(peer, None)
        self._admitted.pop(peer, None)

    def cut(self, sender: PeerId, to: PeerId) -> None:
        """From now on nothing comes through from `sender` to `to`; the other direction stays as it is."""
        self._cut[sender, to] += 1

    def join(self, sender: PeerId, to: PeerId) -> None:
        """Undo one cut of that way."""
        self._cut[sender, to] -= 1

    def partition(self, *sides: Collection[PeerId]) -> None:
        """Cut all ways between peers of different `sides`, in both directions."""
        for side in sides:
            for other in sides:
                if other is not side:
                    self._cut.update((sender, to) for sender in side for to in other)

    def heal(self) -> None:
        """Join all ways that were cut."""
        self._cut.clear()

    def clog(self, sender: PeerId, to: PeerId, until_s: float) -> None:
        """What `sender` sends `to` arrives at `until_s` at the earliest."""
        self._way(sender, to).clogged_until_s = until_s

    def admit(self, at: PeerId, peer: PeerId) -> None:
        self._admitted.setdefault(at, set()).add(peer)

    def carry(self, sender: PeerId, to: PeerId, header: bytes, payload: Buffer) -> int:
        size = wire_bytes(len(header), len(payload), encrypted=True)
        if sender not in self._ports:
            return size
        self.carried[sender, to] += size
        if self._cut and self._cut[sender, to] > 0:
            self.happened["cut"] += 1
            return size
        way = self._way(sender, to)
        when = self._arrival(sender, to, way, link_bytes(size), asyncio.get_running_loop().time())
        frame = _Frame(sender, to, header, payload, size, way.connection, garbled=False)
        if self.noise is QUIET:
            self._in_order(when, way, frame)
        else:
            self._noisily(when, way, frame)
        return size

    def _in_order(self, when: float, way: _Way, frame: _Frame) -> None:
        way.last_s = when = max(when, math.nextafter(way.last_s, math.inf))
        self._schedule(when, frame)

    def _noisily(self, when: float, way: _Way, frame: _Frame) -> None:
        noise, under_way_s = self.noise, when - asyncio.get_running_loop().time()
        frame = frame._replace(garbled=self._chance(way, noise.corrupt, "garbled"))
        if self._chance(way, noise.reorder, "overtaken"):
            self._schedule(when + way.chance.uniform(0, under_way_s), frame)
        elif not self._chance(way, noise.loss, "lost"):
            self._in_order(when, way, frame)
        if self._chance(way, noise.duplicate, "doubled"):
            self._schedule(when + way.chance.uniform(0, under_way_s), frame)

    def _way(self, sender: PeerId, to: PeerId) -> _Way:
        way = self._ways.get((sender, to))
        if way is None:
            way = self._ways[sender, to] = _Way(random.Random(f"{self._seed} {sender}>{to}"))
        return way

    def _chance(self, way: _Way, probability: float, what: str) -> bool:
        if probability == 0 or way.chance.random() >= probability:
            return False
        self.happened[what] += 1
        return True

    def _arrival(self, sender: PeerId, to: PeerId, way: _Way, size: int, now: float) -> float:
        up, down = self.links.get(sender, self.link), self.links.get(to, self.link)
        start = max(now, self._up_free_s.get(sender, 0.0))
        sent = self._up_free_s[sender] = start + size / up.bandwidth_Bps
        latency_s = max(up.latency_s, down.latency_s)
        if jitter_s := max(up.jitter_s, down.jitter_s):
            latency_s += way.chance.uniform(0.0, jitter_s)
        if self.trunks and (ends := (self.site.get(sender, ""), self.site.get(to, "")))[0] != ends[1]:
            trunk = self.trunks.get(frozenset(ends))
            if trunk is not None:
                latency_s += trunk.latency_s
                if trunk.jitter_s:
                    latency_s += way.chance.uniform(0.0, trunk.jitter_s)
                entered = max(start, self._trunk_free_s.get(ends, 0.0))
                left = self._trunk_free_s[ends] = entered + size / trunk.bandwidth_Bps
                start, sent = entered, max(sent, left)
        first_byte = max(start + latency_s, self._down_free_s.get(to, 0.0))
        arrived = max(sent + latency_s, first_byte + size / down.receives_Bps)
        self._down_free_s[to] = arrived
        return max(arrived, way.clogged_until_s)

    def _schedule(self, when: float, frame: _Frame) -> None:
        port = self._ports.get(frame.to)
        context = None if port is None else port.context
        asyncio.get_running_loop().call_at(when, self._deliver, frame, context=context)

    def _deliver(self, frame: _Frame) -> None:
        sender, to = frame.sender, frame.to
        if self._cut and self._cut[sender, to] > 0:
            self.happened["cut"] += 1
            return
        if (fault := self.before.pop(self.delivered + 1, None)) is not None:
            fault()
        there, way = self._ports.get(to), self._ways[sender, to]
        if there is None or sender not in self._admitted.get(to, ()) or frame.connection != way.connection:
            return
        if frame.garbled:
            self._break(way, sender, to)
            return
        self.delivered += 1
        told = struct.pack("<d", asyncio.get_running_loop().time())
        self._hash.update(b"".join((told, f"{sender}>{to}".encode(), frame.header, frame.payload)))
        there.arrivals.frames(sender, frame.header, frame.payload, frame.size)
        for look in self.after:
            look(to)

    def _break(self, way: _Way, sender: PeerId, to: PeerId) -> None:
        """The connection broke; it is made again at once, of which its dialler learns."""
        way.connection += 1
        port = self._ports.get(sender)
        if port is not None:
            loop, latency_s = asyncio.get_running_loop(), self.links.get(sender, self.link).latency_s
            loop.call_at(loop.time() + latency_s, port.arrivals.reconnected, to, context=port.context)


class SimulatedTransport:
    """A peer's place in a `Network`."""

    def __init__(self, network: Network, id: PeerId) -> None:
        self._network, self._id = network, id

    @property
    def id(self) -> PeerId:
        return self._id

    @property
    def address(self) -> str:
        return f"sim://{self._id}"

    def open(self, arrivals: Arrivals) -> None:
        self._network.open(self._id, arrivals)

    def dial(self, peer: PeerId, address: str) -> None:
        """Every peer can be reached."""

    def admit(self, peer: PeerId) -> None:
        self._network.admit(self._id, peer)

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        return self._network.carry(self._id, peer, header, payload)

    async def self_test(self) -> None:
        """A stranger is refused by `Network`, which delivers only from whom the receiver admitted."""

    def trouble(self, peer: PeerId) -> str | None:
        return None

    def hang_up(self, peer: PeerId) -> None:
        """Nothing to close."""

    def close(self) -> None:
        self._network.close(self._id)
