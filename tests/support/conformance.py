"""Where the promises of every endpoint are tried, over whatever transport.

A world makes endpoints. Each one's transport is wrapped in `Clogged`, which can make a way stand still or a peer fall
silent, and in a lossy world also in `Lossy`, which drops, repeats and reorders frames as its seed says.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from samovar.protocols.budget import Budget
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.group import Group
from samovar.protocols.link.lane import Outbound
from samovar.protocols.link.link import Link
from samovar.protocols.relay.ends import Ends
from samovar.protocols.relay.messages import RELAY
from samovar.protocols.relay.relay import Relay
from samovar.protocols.transport import Arrivals, PeerId, Pipes, Transport
from samovar.protocols.wire.frames import PAYLOAD_BYTES_MAX, Buffer, Lane, message


@message("test", lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Parcel:
    n: int


@message("test")
@dataclass(frozen=True, slots=True)
class Postcard:
    n: int


@message("test", lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Whisper:
    n: int


@message("test")
@dataclass(frozen=True, slots=True)
class Riddle:
    ask: int
    n: int


@message("test")
@dataclass(frozen=True, slots=True)
class Solution:
    ask: int
    n: int


class Wrapper:
    """A transport around another."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    @property
    def id(self) -> PeerId:
        return self.inner.id

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def machine(self) -> str:
        return self.inner.machine

    @property
    def pipes(self) -> Pipes | None:
        return self.inner.pipes

    @property
    def budget(self) -> Budget | None:
        return self.inner.budget

    def reaches(self, peer: PeerId) -> bool:
        return self.inner.reaches(peer)

    def open(self, arrivals: Arrivals) -> None:
        self.inner.open(arrivals)

    def dial(self, peer: PeerId, address: str) -> None:
        self.inner.dial(peer, address)

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        self.inner.admit(peer, shared=shared)

    def dismiss(self, peer: PeerId) -> None:
        self.inner.dismiss(peer)

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        return self.inner.post(peer, header, payload)

    async def self_test(self) -> None:
        await self.inner.self_test()

    def whence(self, peer: PeerId) -> str:
        return self.inner.whence(peer)

    def trouble(self, peer: PeerId) -> str | None:
        return self.inner.trouble(peer)

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        self.inner.hang_up(peer, call=call)

    def close(self) -> None:
        self.inner.close()


class Lossy(Wrapper):
    """Of every ten frames to a peer one is lost, one comes twice, and one is overtaken by what comes within 10 ms; the
    seed says which. Those to `spared` peers are left alone."""

    def __init__(self, inner: Transport, rng: random.Random) -> None:
        super().__init__(inner)
        self.happened = Counter[str]()
        self._rng = rng
        self._fates: dict[PeerId, list[str]] = defaultdict(list)
        self._late: dict[PeerId, list[tuple[bytes, Buffer]]] = defaultdict(list)
        self.spared: set[PeerId] = set()

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        fates = self._fates[peer]
        if not fates:
            fates += self._rng.sample(["lost", "repeated", "overtaken", *[""] * 7], 10)
        fate = "" if peer in self.spared else fates.pop()
        self.happened[fate] += 1
        if fate == "overtaken":
            self._late[peer].append((header, payload))
            asyncio.get_running_loop().call_later(0.01, self._release, peer)
            return len(header) + len(payload)
        size = 0
        for _ in range({"lost": 0, "repeated": 2}.get(fate, 1)):
            size = super().post(peer, header, payload)
        self._release(peer)
        return size

    def _release(self, peer: PeerId) -> None:
        for late in self._late.pop(peer, ()):
            super().post(peer, *late)

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        self._late.pop(peer, None)
        super().hang_up(peer, call=call)


class Clogged(Wrapper):
    """A way to a peer can be made to stand still: frames wait in order until it moves on. A silent peer neither sends
    nor hears. `posted` counts the frames to each peer; `posting` is told of each before it goes."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.silent = False
        self.posted = Counter[PeerId]()
        self.held_up = 0
        self.posting: Callable[[PeerId], None] = lambda peer: None
        self._clogs: dict[PeerId, list[tuple[bytes, Buffer]]] = {}

    def open(self, arrivals: Arrivals) -> None:
        def frames(sender: PeerId, header: Buffer, payload: Buffer, wire_bytes: int) -> None:
            if not self.silent:
                arrivals.frames(sender, header, payload, wire_bytes)

        super().open(replace(arrivals, frames=frames))

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        self.posted[peer] += 1
        self.posting(peer)
        if self.silent:
            return 0
        if peer in self._clogs:
            self.held_up += 1
            self._clogs[peer].append((header, bytes(payload)))
            return len(header) + len(payload)
        return super().post(peer, header, payload)

    def clog(self, peer: PeerId) -> None:
        self._clogs[peer] = []

    def unclog(self, peer: PeerId) -> None:
        for frames in self._clogs.pop(peer):
            super().post(peer, *frames)


class World(ABC):
    """Where a promise is tried. `virtual`: time is, so that it can be asserted. `outbound`: peers that cannot be
    dialled; `relays`: peers that are there from the start, and carry what such peers say to each other."""

    virtual = True
    patience_s = 4.0
    outbound: Sequence[str] = ()
    relays: Sequence[str] = ()
    lossy_relays = True
    """Whether a lossy world loses also what comes to a relay and from it. Faults of two links, one inside the other, at
    each tenth frame are more than the patience allows for."""

    def __init__(self, *, lossy: bool) -> None:
        self.lossy = lossy
        self.ways: dict[str, Clogged] = {}
        self.losses: list[Lossy] = []
        self.endpoints: list[Endpoint] = []
        self.lost: dict[str, list[PeerId]] = defaultdict(list)
        self.carriers: dict[str, Relay] = {}
        self._unasked: dict[str, Endpoint] = {}
        """The relays that no promise has asked for."""
        self._made = 0

    @abstractmethod
    def transport(self, name: str) -> Transport:
        """A transport of the peer `name`, with the same id whenever it is asked for."""

    @abstractmethod
    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run to the end, or fail in a reasonable time."""

    async def endpoint(self, name: str) -> Endpoint:
        """An open endpoint that knows all others, as they know it."""
        if not self._made:
            self._unasked = {relay: await self._endpoint(relay) for relay in self.relays}
        return self._unasked.pop(name, None) or await self._endpoint(name)

    async def _endpoint(self, name: str) -> Endpoint:
        self._made += 1
        transport = self.transport(name)
        if self.lossy:
            transport = Lossy(transport, random.Random(self._made))
            self.losses.append(transport)
        self.ways[name] = Clogged(transport)
        endpoint = Endpoint(self.ways[name], patience_s=self.patience_s, rng=random.Random(1000 + self._made))
        endpoint.on_lost.append(lambda peer, why: self.lost[name].append(peer))
        await endpoint.open()
        self._relaying(name, endpoint)
        if not self.lossy_relays:
            for other in self.ways.keys() - {name} if name in self.relays else self.relays:
                self.spare(name, other)
        for other in self.endpoints:
            endpoint.dial(other.id, other.address)
            other.dial(endpoint.id, endpoint.address)
        self.endpoints.append(endpoint)
        return endpoint

    def _relaying(self, name: str, endpoint: Endpoint) -> None:
        channel = Channel(endpoint, RELAY)
        if endpoint.pipes is not None:
            Ends(channel, endpoint.pipes, lambda far: [self.ways[relay].id for relay in self.relays])
        elif name in self.relays:
            self.carriers[name] = Relay(
                channel, lambda: {self.ways[one].id for one in self.outbound if one in self.ways}
            )

    def spare(self, *names: str) -> None:
        """From now on nothing is lost between these."""
        for name in names:
            if isinstance(lossy := self.ways[name].inner, Lossy):
                lossy.spared |= {self.ways[other].id for other in names}

    async def three(self) -> tuple[Endpoint, Endpoint, Endpoint]:
        return await self.endpoint("a"), await self.endpoint("b"), await self.endpoint("c")

    def try_promise(self, promise: Callable[["World"], Coroutine[Any, Any, None]], *, long: bool) -> None:
        """`long`: what the promise does takes so many frames that in a lossy world all faults happen."""

        async def main() -> None:
            try:
                await promise(self)
            finally:
                for endpoint in self.endpoints:
                    endpoint.abort()

        self.run(main())
        if self.lossy and long:
            happened = sum((lossy.happened for lossy in self.losses), Counter())
            assert min(happened["lost"], happened["repeated"], happened["overtaken"]) > 0, happened


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # of what endpoints do not tell, there is no event to wait for
        await asyncio.sleep(0.005)


def over(endpoint: Endpoint, channel: str = "test") -> Channel:
    """What a test says goes over a channel of its own, if it is not about another."""
    return Channel(endpoint, channel)


def group_of(ids: Sequence[PeerId], endpoint: Endpoint) -> Group:
    """These peers, as that of the `endpoint` sees them."""
    return Group(tuple(ids), 1, [*ids].index(endpoint.id))


def collect(endpoint: Endpoint, *, consume: bool = True) -> dict[type, list[Envelope]]:
    """What arrives at `endpoint` from now on, by kind."""
    arrived: dict[type, list[Envelope]] = {Parcel: [], Postcard: []}

    def put(envelope: Envelope) -> None:
        arrived[type(envelope.message)].append(envelope)
        if consume:
            envelope.done()

    for kind in arrived:
        endpoint.reception._handlers.pop(("test", kind), None)
    over(endpoint).on(Parcel, put)
    over(endpoint).on(Postcard, put)
    return arrived


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [envelope.message.n for envelope in envelopes]


def solve(endpoint: Endpoint) -> None:
    over(endpoint).on(Riddle, lambda e: over(endpoint).post(e.sender, Solution(e.message.ask, e.message.n + 1)))


async def ask(endpoint: Endpoint, peer: Endpoint, n: int) -> int:
    answer = await over(endpoint).ask(peer.id, lambda number: Riddle(number, n), answers=(Solution,))
    return int(answer.message.n)


def link_of(endpoint: Endpoint, peer: Endpoint) -> Link:
    return endpoint.links.known(peer.id)


def out_lane(endpoint: Endpoint, peer: Endpoint, lane: Lane = Lane.DATA) -> Outbound:
    return link_of(endpoint, peer)._out[lane]


async def ship(endpoint: Endpoint, peer: Endpoint, count: int, size: int) -> None:
    for n in range(count):
        await over(endpoint).send(peer.id, Parcel(n), bytes(size))


async def stuck(sending: asyncio.Task, endpoint: Endpoint, peer: Endpoint) -> None:
    """Return when `sending` waits for credit: all that `peer` will grant was used, and nothing is under way."""

    def used_up() -> bool:
        lane, there = out_lane(endpoint, peer), link_of(peer, endpoint)
        granted = (inbound := there._in[Lane.DATA]).limit_bytes(inbound.room(inbound))
        return bool(lane.queue) and not lane.in_flight and lane.posted_bytes >= granted

    await eventually(used_up)
    assert not sending.done()
