"""One server of the parameter server in a simulation, whose workers are played by the test."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from simulated import LINK, endpoint_in, simulate

from samovar.aggregation.consistency import parse_consistency
from samovar.aggregation.filters.pulls import PullFilters
from samovar.aggregation.server.add import Add
from samovar.aggregation.vector import parts
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.members.attributes import SERVER
from samovar.protocols.members.view import Attributes, Member, View
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.keys import Keys
from samovar.protocols.parameter_server.messages import PARAMETER_SERVER
from samovar.protocols.parameter_server.orders import Orders
from samovar.protocols.parameter_server.portions import Portions
from samovar.protocols.parameter_server.serving import Parts
from samovar.protocols.parameter_server.store import Copy, Store
from samovar.protocols.parameter_server.tenure import Tenure
from samovar.protocols.stalls.stalls import Stalls
from samovar.sims.world.network import Network

NAMES = ("server", "a", "b", "stranger")
Question = Callable[[int], object]


@dataclass
class _NoStalls:
    """Nobody is reported."""

    @contextlib.contextmanager
    def waiting(self, awaited: object, came_s: object) -> Any:
        yield


def view(generation: int) -> View:
    members = tuple(
        Member(name, name, f"sim://{name}", Attributes(role=SERVER if name == "server" else "", data_shard=at), at)
        for at, name in enumerate(NAMES)
        if name != "stranger"
    )
    return View(generation, members, True)


@dataclass
class Server:
    """A server that holds `ranges` ranges, with `copy` of them, in a view with the workers a and b. The stranger is in
    no view. `partitions`: the names of those whose pushes make updates, each after a coordinator's order; none:
    workers' own do. `pulls`: the filters of pulls."""

    copy: Copy
    partitions: tuple[str, ...] = ()
    ranges: int = 1
    pulls: PullFilters | None = None
    network: Network = field(default_factory=lambda: Network(parse_link(LINK), 1))

    def __post_init__(self) -> None:
        self.endpoints = {name: endpoint_in(self.network, name) for name in NAMES}
        channel, size = Channel(self.endpoint, PARAMETER_SERVER), self.copy.values.numel()
        keys = Keys(parts(size, self.ranges), size, torch.float32, pulls=self.pulls)
        store = Store(keys, Add(), self.partitions, coordinated=bool(self.partitions))
        for number, part in enumerate(keys.parts):
            own, copy = self.copy.values[part.start : part.stop].clone(), self.copy
            alike = replace(copy, values=own, clocks=dict(copy.clocks), enlisted={*copy.enlisted})
            store.copies[number] = copy if self.ranges == 1 else alike
        tenure, stalls = Tenure(channel, self.ranges, 1), cast(Stalls, _NoStalls())
        bsp, rule = parse_consistency("bsp"), parse_algorithm("statistical_query" if self.partitions else "sync")
        self.parts = Parts.around(channel, store, tenure, bsp, rule, stalls, None)
        orders = Orders(channel, store, tenure, self.parts.chains)
        portions = Portions(channel, store, tenure, self.parts.intake)
        self.parts = replace(self.parts, more=(orders, portions))

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoints["server"]

    async def open(self) -> None:
        for endpoint in self.endpoints.values():
            await endpoint.open()
            for other in NAMES:
                endpoint.dial(other, f"sim://{other}")
        self.parts.tenure.begin(view(1))

    async def asked(
        self, worker: str, question: Question, *answers: type, payload: bytes = b"", within_s: float = 2.0
    ) -> Any:
        """The answer to `worker`. Raises PeerLost if there is none within `within_s` seconds."""
        channel = Channel(self.endpoints[worker], PARAMETER_SERVER)
        envelope = await channel.ask("server", question, payload, answers=answers, within_s=within_s)
        envelope.done()
        return envelope.message


def with_server(
    copy: Copy,
    scene: Callable[[Server], Awaitable[None]],
    partitions: tuple[str, ...] = (),
    ranges: int = 1,
    pulls: PullFilters | None = None,
) -> None:
    async def main() -> None:
        server = Server(copy, partitions, ranges, pulls)
        await server.open()
        try:
            await scene(server)
        finally:
            server.parts.reads.close()
            for endpoint in server.endpoints.values():
                endpoint.abort()

    simulate(main())


def copy_of(clocks: dict[str, int], enlisted: set[str], updates: int, size: int = 3) -> Copy:
    return Copy(torch.zeros(size), {}, term=1, version=updates, updates=updates, clocks=clocks, enlisted=enlisted)


class Present:
    """The presence of a worker in the first view, which does not end."""

    def __init__(self) -> None:
        self.present = self.now = view(1)
        self.on_view: list[object] = []
        self.on_change: list[object] = []

    def has_left(self, view: View) -> bool:
        return False

    async def view(self) -> View:
        return self.present

    async def pause(self) -> None:
        await asyncio.sleep(0.1)
