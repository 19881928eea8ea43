"""A virtual network: every peer has an up-link and a down-link with a bandwidth, and every way a latency with jitter.

Frames of one way keep their order, as on TCP. A message occupies its sender's up-link and its receiver's down-link for
size / bandwidth each, at the same time (cut-through), so many senders share one receiver's down-link. What is under way
when its way is cut, or its receiver closed, is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..protocols.transport import Arrivals, PeerId, wire_bytes
from ..protocols.wire import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One peer's connection: bytes a second each way (full duplex), one-way latency and its jitter in seconds."""

    bandwidth_Bps: float
    latency_s: float
    jitter_s: float = 0.0


_RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "tbit": 1e12 / 8}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_link(text: str) -> LinkSpec:
    """``10mbit,40ms`` or ``10mbit,40ms,5ms``: bandwidth, latency, jitter. Raises ValueError that says what is wrong."""
    parts = [part.strip() for part in text.lower().split(",")]
    if len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is no link: write BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, e.g. 10mbit,40ms")
    bandwidth = _quantity(parts[0], _RATES, "a bandwidth", "10mbit")
    if bandwidth == 0:
        raise ValueError(f"a bandwidth of {parts[0]!r} carries nothing")
    times = [_quantity(part, _TIMES, "a duration", "40ms") for part in parts[1:]]
    return LinkSpec(bandwidth_Bps=bandwidth, latency_s=times[0], jitter_s=times[1] if len(times) > 1 else 0.0)


def parse_duration(text: str) -> float:
    """Seconds in ``5ms`` or ``2s``. Raises ValueError that says what is wrong."""
    return _quantity(text.strip().lower(), _TIMES, "a duration", "5ms")


def _quantity(text: str, units: dict[str, float], what: str, example: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {what}: a number and one of {', '.join(units)}, e.g. {example}")
    return float(match[1]) * units[match[2]]


class Network:
    """Connects `SimulatedTransport`s. `digest` is a hash over every delivery: equal runs have equal digests."""

    def __init__(self, link: LinkSpec, rng: random.Random) -> None:
        self.link = link
        self.links: dict[PeerId, LinkSpec] = {}
        """Peers whose connection is not the common `link`."""
        self.delivered = 0
        self.dropped = 0
        """Frames lost on ways that were cut."""
        self.before: dict[int, Callable[[], None]] = {}
        """What to do right before the delivery of that number, counted from 1: crash somebody, cut a way."""
        self._cut: set[tuple[PeerId, PeerId]] = set()
        self._rng = rng
        self._hash = hashlib.blake2b(digest_size=16)
        self._open: dict[PeerId, Arrivals] = {}
        self._admitted: dict[PeerId, set[PeerId]] = {}
        self._up_free_s: dict[PeerId, float] = {}
        self._down_free_s: dict[PeerId, float] = {}
        self._last_s: dict[tuple[PeerId, PeerId], float] = {}

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def open(self, peer: PeerId, arrivals: Arrivals) -> None:
        if peer in self._open:
            raise OSError(f"{peer} is open already")
        self._open[peer] = arrivals

    def close(self, peer: PeerId) -> None:
        """From now on `peer` neither sends nor receives."""
        self._open.pop(peer, None)
        self._admitted.pop(peer, None)

    def cut(self, sender: PeerId, to: PeerId) -> None:
        """From now on nothing comes through from `sender` to `to`; the other direction stays as it is."""
        self._cut.add((sender, to))

    def partition(self, *sides: Collection[PeerId]) -> None:
        """Cut all ways between peers of different `sides`, in both directions."""
        for side in sides:
            for other in sides:
                if other is not side:
                    self._cut.update((sender, to) for sender in side for to in other)

    def heal(self) -> None:
        """Join all ways that were cut."""
        self._cut.clear()

    def admit(self, at: PeerId, peer: PeerId) -> None:
        self._admitted.setdefault(at, set()).add(peer)

    def carry(self, sender: PeerId, to: PeerId, header: bytes, payload: Buffer) -> int:
        size = wire_bytes(len(header), len(payload), encrypted=True)
        if (sender, to) in self._cut:
            self.dropped += 1
        elif sender in self._open:
            loop = asyncio.get_running_loop()
            loop.call_at(self._arrival(sender, to, size, loop.time()), self._deliver, sender, to, header, payload, size)
        return size

    def _arrival(self, sender: PeerId, to: PeerId, size: int, now: float) -> float:
        up, down = self.links.get(sender, self.link), self.links.get(to, self.link)
        start = max(now, self._up_free_s.get(sender, 0.0))
        sent = self._up_free_s[sender] = start + size / up.bandwidth_Bps
        way = max(up.latency_s, down.latency_s)
        if jitter := max(up.jitter_s, down.jitter_s):
            way += self._rng.uniform(0.0, jitter)
        first_byte = max(start + way, self._down_free_s.get(to, 0.0))
        arrived = max(sent + way, first_byte + size / down.bandwidth_Bps, self._last_s.get((sender, to), 0.0))
        self._down_free_s[to] = self._last_s[sender, to] = arrived
        return arrived

    def _deliver(self, sender: PeerId, to: PeerId, header: bytes, payload: Buffer, size: int) -> None:
        if (sender, to) in self._cut:
            self.dropped += 1
            return
        if (fault := self.before.pop(self.delivered + 1, None)) is not None:
            fault()
        there = self._open.get(to)
        if there is None or sender not in self._admitted.get(to, ()):
            return
        self.delivered += 1
        self._hash.update(struct.pack("<d", asyncio.get_running_loop().time()))
        self._hash.update(f"{sender}>{to}".encode())
        self._hash.update(header)
        self._hash.update(payload)
        there.frames(sender, header, payload, size)


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
