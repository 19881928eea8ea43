"""The worlds in which promises are tried: every transport, and peers that cannot be dialled on those that know such."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from conformance import World
from town import LOCAL

from samovar.protocols.addresses import NOWHERE
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.shaping.shaped_transport import Shaped
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
        self.network = Network(link, 11)

    def transport(self, name: str) -> Transport:
        if name in self.outbound:
            self.network.doors.outbound.add(name)
        return transport_of(self.network, name)


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


class TwoRelays:
    """Two peers that cannot be dialled, and two relays."""

    outbound, relays = ("a", "b"), ("r", "s")


class SimulatedRelays(TwoRelays, Simulated):
    pass


class CurveRelays(TwoRelays, Curve):
    patience_s = 3.0


class InsecureRelays(TwoRelays, Insecure):
    patience_s = 3.0
