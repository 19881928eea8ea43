"""One server of the parameter server, whose workers are played by the test."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from conformance import eventually
from simulated import LINK, endpoint_in, no_complaints, simulate  # noqa: F401

from samovar.aggregation.consistency import parse_consistency
from samovar.aggregation.server.add import Add
from samovar.aggregation.vector import Part
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.attributes import SERVER
from samovar.protocols.members.view import Attributes, Member, View
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.keys import Keys
from samovar.protocols.parameter_server.messages import (
    FOREVER,
    PARAMETER_SERVER,
    Applied,
    Apply,
    Enlist,
    Enlisted,
    Pull,
    Pulled,
)
from samovar.protocols.parameter_server.serving import Parts
from samovar.protocols.parameter_server.store import Copy, Store
from samovar.protocols.parameter_server.tenure import Tenure
from samovar.protocols.stalls.stalls import Stalls
from samovar.sims.world.network import Network

NAMES = ("server", "a", "b")


@dataclass
class _NoStalls:
    """Nobody is reported."""

    @contextlib.contextmanager
    def waiting(self, awaited: object) -> Any:
        yield


@dataclass
class Server:
    """A server that holds one range of three elements, with `copy` of it, in a view with the workers a and b."""

    copy: Copy
    network: Network = field(default_factory=lambda: Network(parse_link(LINK), 1))

    def __post_init__(self) -> None:
        self.endpoints = {name: endpoint_in(self.network, name) for name in NAMES}
        channel = Channel(self.endpoint, PARAMETER_SERVER)
        store = Store(Keys((Part(0, 3),), 3, torch.float32), Add())
        store.copies[0] = self.copy
        tenure, stalls = Tenure(channel, 1, 1), cast(Stalls, _NoStalls())
        bsp, sync = parse_consistency("bsp"), parse_algorithm("sync")
        self.parts = Parts.around(channel, store, tenure, bsp, sync, stalls, None)

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoints["server"]

    async def open(self) -> None:
        for endpoint in self.endpoints.values():
            await endpoint.open()
            for other in NAMES:
                endpoint.dial(other, f"sim://{other}")
        members = tuple(
            Member(name, name, f"sim://{name}", Attributes(role=SERVER if name == "server" else "", data_shard=at), at)
            for at, name in enumerate(NAMES)
        )
        self.parts.tenure.begin(View(1, members, True))

    async def asked(self, worker: str, question: Callable[[int], object], *answers: type) -> Any:
        """The answer to `worker`. Raises PeerLost if there is none within two seconds."""
        channel = Channel(self.endpoints[worker], PARAMETER_SERVER)
        envelope = await channel.ask("server", question, answers=answers, within_s=2.0)
        envelope.done()
        return envelope.message


def with_server(copy: Copy, scene: Callable[[Server], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server(copy)
        await server.open()
        try:
            await scene(server)
        finally:
            server.parts.reads.close()
            for endpoint in server.endpoints.values():
                endpoint.abort()

    simulate(main())


def copy_of(clocks: dict[str, int], enlisted: set[str], updates: int) -> Copy:
    return Copy(torch.zeros(3), {}, term=1, updates=updates, clocks=clocks, enlisted=enlisted)


def test_the_first_reads_wait_for_each_worker_to_take_part_once() -> None:
    """A worker that has come back during its read takes part anew only after the read."""

    async def back(server: Server) -> None:
        server.parts.tenure.settle([0])
        for worker in ("a", "b"):
            assert await server.asked(worker, lambda ask: Pull(ask, 1, 0, (0,), (0,)), Pulled)

    async def never_there(server: Server) -> None:
        server.parts.tenure.settle([0])
        with pytest.raises(PeerLost, match="has not answered"):
            await server.asked("b", lambda ask: Pull(ask, 1, 0, (0,), (0,)), Pulled)

    with_server(copy_of({"a": 0, "b": 0}, {"b"}, updates=0), back)
    with_server(copy_of({"b": 0}, {"b"}, updates=0), never_there)


@pytest.mark.parametrize(
    ("clocks", "enlisted", "first"),
    [
        ({"a": 28}, set(), 28),  # `a` may come back
        ({"a": FOREVER}, set(), 9),
        ({"a": 28, "c": 12}, {"c"}, 12),
        ({"a": 28, "c": 5}, {"c"}, 9),
    ],
)
def test_a_worker_that_takes_part_is_not_behind_the_others(
    clocks: dict[str, int], enlisted: set[str], first: int
) -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        enlisted = await server.asked("b", lambda ask: Enlist(ask, 1, 9, (0,)), Enlisted)
        assert enlisted.clocks == (first,)

    with_server(copy_of(clocks, enlisted, updates=30), scene)


def test_a_wrong_message_that_had_waited_is_a_fault_of_its_sender() -> None:
    async def scene(server: Server) -> None:
        def wrong_entry(ask: int) -> Apply:
            return Apply(ask, 1, (0,), (), (), (), (), False, False)

        wrong = [asyncio.create_task(server.asked("a", wrong_entry, Applied)) for _ in range(16)]
        right = asyncio.create_task(server.asked("b", lambda ask: Enlist(ask, 1, 0, (0,)), Enlisted))
        await eventually(lambda: len(server.parts.tenure._held) == 17)
        assert not server.endpoint.refused
        server.parts.tenure.settle([0])
        assert await right, "the messages of others that had waited are handled"
        assert "lack versions or clocks" in server.endpoint.refused["a"]
        for task in wrong:
            with pytest.raises(PeerLost):
                await task
        with pytest.raises(PeerLost):  # it is cut off, as for 16 faults on arrival
            await server.asked("a", lambda ask: Enlist(ask, 1, 0, (0,)), Enlisted)

    with_server(copy_of({}, set(), updates=0), scene)
