"""The conformance suite, over every transport, plain and lossy."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
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
from town import LOCAL

from samovar.protocols.addresses import NOWHERE
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.shaping.transport import Shaped
from samovar.protocols.transport import Transport
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.outbound import transport_of


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
        if name in self.outbound:
            self._network.doors.outbound.add(name)
        return transport_of(self._network, name)


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
        return ZeroMQTransport(keys, listen=NOWHERE if name in self.outbound else LOCAL)


class Insecure(Sockets):
    def transport(self, name: str) -> Transport:
        transport = ZeroMQTransport(None, listen=NOWHERE if name in self.outbound else LOCAL)
        transport.id = f"insecure-{name}"  # as if it were drawn again when the peer restarts
        return transport


class Answered:
    """Two peers that cannot be dialled, and one that can: what it says to them goes by their connections."""

    outbound, relays = ("b", "c"), ("a",)


class Relayed:
    """Peers that cannot be dialled, and a relay."""

    outbound, relays = ("a", "b", "c"), ("relay",)
    lossy_relays = False


class SimulatedAnswered(Answered, Simulated):
    pass


class SimulatedRelayed(Relayed, Simulated):
    pass


class CurveAnswered(Answered, Curve):
    pass


class CurveRelayed(Relayed, Curve):
    pass


class InsecureRelayed(Relayed, Insecure):
    pass


WORLDS = (InProcess, ShapedInProcess, Simulated, Curve, Insecure)
CALLED_BACK = (SimulatedAnswered, SimulatedRelayed, CurveAnswered, CurveRelayed, InsecureRelayed)
IN_SOAK = {(Curve, True), (Insecure, False), (SimulatedAnswered, False), (SimulatedRelayed, True)}
OF_LOSSY_SOCKETS = {
    messages_arrive_exactly_once_and_in_order_on_each_lane,
    a_restarted_peer_never_gets_what_was_meant_for_its_past_self,
}


def is_long(world: type[World], lossy: bool, promise: Callable[..., Any]) -> bool:
    """Real sockets take seconds for a promise about silence. For each change all promises are tried with Curve where
    nothing is lost, and two without Curve where frames are; losses in all other promises are simulated. So are peers
    that cannot be dialled: `test_relay.py` tries the gist of them over sockets."""
    if (world, lossy) == (Insecure, True):
        return promise not in OF_LOSSY_SOCKETS
    return (world, lossy) in IN_SOAK or (world in CALLED_BACK and issubclass(world, Sockets))


def cases() -> Iterator[Any]:
    for world, lossy, promise in product((*WORLDS, *CALLED_BACK), (False, True), PROMISES):
        case = soaked if is_long(world, lossy, promise) else pytest.param
        yield case(world, lossy, promise, id=f"{world.__name__}-{'lossy' if lossy else 'plain'}-{promise.__name__}")


@pytest.mark.parametrize(("world", "lossy", "promise"), [*cases()])
def test_every_endpoint_keeps_its_promises(world: type[World], lossy: bool, promise) -> None:
    world(lossy=lossy).try_promise(promise, long=promise not in TOO_SHORT_FOR_FAULTS)
