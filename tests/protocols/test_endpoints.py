"""The conformance suite, over every transport, plain and lossy."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from itertools import product
from typing import Any

import pytest
from conformance import World
from promises import (
    PROMISES,
    TOO_SHORT_FOR_FAULTS,
    a_restarted_peer_never_gets_what_was_meant_for_its_past_self,
    messages_arrive_exactly_once_and_in_order_on_each_lane,
)
from tiers import soaked

from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.shaping.transport import Shaped
from samovar.protocols.transport import Transport
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.transport import SimulatedTransport


class Virtual(World):
    def run(self, main: Coroutine[Any, Any, None]) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(600):
                await main

        run_virtual(in_time())


class InProcess(Virtual):
    def __init__(self, *, lossy: bool) -> None:
        super().__init__(lossy=lossy)
        self._hub = LocalHub()

    def transport(self, name: str) -> Transport:
        return LocalTransport(self._hub, name)


class Simulated(Virtual):
    def __init__(self, *, lossy: bool) -> None:
        super().__init__(lossy=lossy)
        link = LinkSpec(bandwidth_Bps=12.5e6, latency_s=0.010, jitter_s=0.005)
        self._network = Network(link, 11)

    def transport(self, name: str) -> Transport:
        return SimulatedTransport(self._network, name)


class ShapedInProcess(InProcess):
    """Each peer on a link of its own."""

    def transport(self, name: str) -> Transport:
        link = LinkSpec(bandwidth_Bps=12.5e6, latency_s={"a": 0.002, "b": 0.010}.get(name, 0.005), jitter_s=0.005)
        return Shaped(super().transport(name), link, random.Random(name), encrypted=True)


class Sockets(World):
    virtual = False
    patience_s = 1.2

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(100):
                await main

        asyncio.run(in_time())


class Curve(Sockets):
    def __init__(self, *, lossy: bool) -> None:
        super().__init__(lossy=lossy)
        self._keys: dict[str, KeyPair] = {}

    def transport(self, name: str) -> Transport:
        keys = self._keys.setdefault(name, KeyPair.new())
        return ZeroMQTransport(keys, listen="tcp://127.0.0.1:0")


class Insecure(Sockets):
    def transport(self, name: str) -> Transport:
        transport = ZeroMQTransport(None, listen="tcp://127.0.0.1:0")
        transport.id = f"insecure-{name}"  # as if it were drawn again when the peer restarts
        return transport


OF_LOSSY_SOCKETS = {
    messages_arrive_exactly_once_and_in_order_on_each_lane,
    a_restarted_peer_never_gets_what_was_meant_for_its_past_self,
}


def cases() -> Iterator[Any]:
    """Real sockets take seconds for a promise about silence. For each change all promises are tried with Curve where
    nothing is lost, and two without Curve where frames are; losses in all other promises are simulated."""
    for world, lossy, promise in product(
        (InProcess, ShapedInProcess, Simulated, Curve, Insecure), (False, True), PROMISES
    ):
        kept = {Curve: not lossy, Insecure: lossy and promise in OF_LOSSY_SOCKETS}.get(world, True)
        case = pytest.param if kept else soaked
        yield case(world, lossy, promise, id=f"{world.__name__}-{'lossy' if lossy else 'plain'}-{promise.__name__}")


@pytest.mark.parametrize(("world", "lossy", "promise"), [*cases()])
def test_every_endpoint_keeps_its_promises(world: type[World], lossy: bool, promise) -> None:
    world(lossy=lossy).try_promise(promise, long=promise not in TOO_SHORT_FOR_FAULTS)
