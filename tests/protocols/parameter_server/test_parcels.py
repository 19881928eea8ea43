"""Workers and a server on one machine leave each other pushes and values in shared memory: the bits of the link, and a
parcel that is written over is never taken."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Never, cast

import one_server
import pytest
import torch
from one_server import Present, Server, copy_of, with_server
from simulated import no_complaints  # noqa: F401

from samovar.protocols.channel import Channel
from samovar.protocols.members.presence import Presence
from samovar.protocols.members.view import View
from samovar.protocols.parameter_server import intake as intake_module
from samovar.protocols.parameter_server import parcels as parcels_module
from samovar.protocols.parameter_server.client import Client
from samovar.protocols.parameter_server.messages import PARAMETER_SERVER
from samovar.protocols.parameter_server.parcels import BOARD_BYTES_MAX, SLOTS, Parcels
from samovar.protocols.parameter_server.shares import Pushes
from samovar.protocols.shared_memory import board as board_module
from samovar.protocols.shared_memory.board import ROWS
from samovar.protocols.shared_memory.machine import machine
from samovar.protocols.wire.frames import PAYLOAD_BYTES_MAX

pytestmark = pytest.mark.skipif(not machine(), reason="this machine has no memory to share: not Linux on x86-64")
SIZE = 40_000
WORKERS = ("a", "b")
view_apart = one_server.view


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    def near(generation: int) -> View:
        apart = view_apart(generation)
        return replace(apart, members=tuple(replace(one, machine=machine()) for one in apart.members))

    monkeypatch.setattr(one_server, "view", near)


def clients_of(server: Server) -> list[Client]:
    clients = []
    for worker in WORKERS:
        channel = Channel(server.endpoints[worker], PARAMETER_SERVER)
        clients.append(Client(channel, cast(Presence, Present()), server.parts.store.keys, 1))
    return clients


async def turn(clients: list[Client], number: int, *, size: int = SIZE) -> list[torch.Tensor]:
    """The values that the workers pull after each has pushed its turn's numbers, of which the mean is added."""
    for at, client in enumerate(clients, 1):
        pushed = torch.arange(size) % 97.0 * at + number
        client.push(number, Pushes(pushed, {}), (0,) * 4, reads=True)
    pulled = [(await client.pull(number)).vector for client in clients]
    for client in clients:
        await client.at_most(0)
    return pulled


def due(turns: int, size: int = SIZE) -> torch.Tensor:
    return torch.arange(size) % 97.0 * 1.5 * turns + sum(range(1, turns + 1))


def with_clients(scene: Callable[[Server, list[Client]], Awaitable[None]], size: int = SIZE) -> None:
    async def whole(server: Server) -> None:
        server.parts.tenure.settle(range(4))
        clients = clients_of(server)
        try:
            await scene(server, clients)
        finally:
            for client in clients:
                client.close()
            server.parts.tenure.parcels.close()

    with_server(copy_of(dict.fromkeys(WORKERS, 0), {*WORKERS}, updates=0, size=size), whole, ranges=4)


def test_after_the_first_turn_values_go_through_shared_memory_and_are_the_same() -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            for pulled in await turn(clients, number):
                assert torch.equal(pulled, due(number))
        sent = server.endpoint.bytes_sent, [server.endpoints[worker].bytes_sent for worker in WORKERS]
        shared = [client.bytes_shared for client in clients]
        for pulled in await turn(clients, 4):
            assert torch.equal(pulled, due(4))
        assert server.endpoint.bytes_sent - sent[0] < SIZE
        assert all(server.endpoints[worker].bytes_sent - sent[1][at] < SIZE for at, worker in enumerate(WORKERS))
        assert [client.bytes_shared - before for client, before in zip(clients, shared, strict=True)] == [8 * SIZE] * 2

    with_clients(scene)


def test_workers_that_read_the_same_values_read_one_parcel() -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            await turn(clients, number)
        before = server.parts.tenure.parcels.bytes_shared
        await turn(clients, 4)
        took = 2 * 4 * SIZE
        assert server.parts.tenure.parcels.bytes_shared - before == took + 4 * SIZE

    with_clients(scene)


def test_a_payload_that_takes_less_time_over_the_link_goes_there() -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            for pulled in await turn(clients, number, size=400):
                assert torch.equal(pulled, due(number, 400))
        assert [client.bytes_shared for client in clients] == [0, 0]

    with_clients(scene, size=400)


@pytest.mark.parametrize("reader", ["server", "worker"])
def test_a_parcel_that_was_written_over_is_asked_for_again_and_applied_once(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            await turn(clients, number)
        found, spoilt = Parcels.find, list[int]()
        own = server.parts.tenure.parcels

        def find(self: Parcels, sender: str, number: int) -> object:
            parcel = found(self, sender, number)
            if parcel is not None and not spoilt and (self is own) is (reader == "server"):
                spoilt.append(number)
                others = clients[0]._exchanges.parcels if sender == "a" else clients[1]._exchanges.parcels
                writer = others if self is own else own
                slot = next(slot for slot, laid in writer._slots.items() if laid.number == number)
                writer._boards.own.clear(slot).fill_(7)
            return parcel

        monkeypatch.setattr(Parcels, "find", find)
        for pulled in await turn(clients, 4):
            assert torch.equal(pulled, due(4))
        assert spoilt

    with_clients(scene)


def test_without_memory_values_go_over_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(nbytes: int) -> int:
        raise OSError("there is none")

    monkeypatch.setattr(board_module, "allocate", none)

    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            for pulled in await turn(clients, number):
                assert torch.equal(pulled, due(number))
        assert [client.bytes_shared for client in clients] == [0, 0]

    with_clients(scene)


@pytest.mark.parametrize(
    ("size", "room"), [(parcels_module._BYTES_MIN, SLOTS), (PAYLOAD_BYTES_MAX, BOARD_BYTES_MAX // PAYLOAD_BYTES_MAX)]
)
def test_a_board_has_room_for_so_many_parcels_until_they_are_taken_or_the_view_ends(size: int, room: int) -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 3):
            await turn(clients, number)
        parcels, payload = clients[0]._exchanges.parcels, bytes(size)
        laid = [parcels.put("server", [payload]) for _ in range(room + 1)]
        assert 0 not in laid[:-1]
        assert laid[-1] == 0
        server.parts.tenure.parcels.took("a", laid[0], 0)
        assert parcels.put("server", [payload]) > laid[-2]
        assert parcels.put("server", [payload]) == 0
        parcels.begin(one_server.view(2))
        assert parcels.put("server", [payload])

    with_clients(scene)


def test_a_parcel_is_given_to_a_second_reader_only_if_its_mark_cannot_free_it_before() -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 3):
            await turn(clients, number)
        parcels, values = server.parts.tenure.parcels, torch.ones(SIZE)
        payload = [values.numpy().data.cast("B")]
        first = parcels.put("a", payload, [values])
        assert parcels.put("b", payload, [values]) == first
        later = parcels.put("b", payload)
        assert parcels.put("b", payload, [values]) > later, "b has been told of a later one"

    with_clients(scene)


def test_what_a_peer_that_ended_was_told_is_forgotten() -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 3):
            await turn(clients, number)
        parcels = server.parts.tenure.parcels
        assert parcels.reaches("a")
        server.endpoint.gone("a", "it was killed")
        await asyncio.sleep(0)
        assert not parcels.reaches("a")
        assert parcels.put("a", [bytes(SIZE)]) == 0

    with_clients(scene)


@pytest.mark.parametrize("blind", ["server", "worker"])
def test_a_peer_that_cannot_map_anothers_board_is_sent_payloads_over_the_link(
    blind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its sender would leave the same payload in memory for it again and again."""

    def none(*given: object) -> Never:
        raise OSError("there is no address space left")

    async def scene(server: Server, clients: list[Client]) -> None:
        server_side, worker_sides = server.parts.tenure.parcels, [client._exchanges.parcels for client in clients]
        for parcels in [server_side] if blind == "server" else worker_sides:
            monkeypatch.setattr(parcels._boards, "_look", none)
        for number in range(1, 4):
            async with asyncio.timeout(60):
                for pulled in await turn(clients, number):
                    assert torch.equal(pulled, due(number))

    with_clients(scene)


def test_a_board_takes_bounded_memory_whatever_the_sizes_and_the_order_of_its_parcels() -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 3):
            await turn(clients, number)
        parcels, taker = clients[0]._exchanges.parcels, server.parts.tenure.parcels
        small, large = bytes(parcels_module._BYTES_MIN), bytes(PAYLOAD_BYTES_MAX)
        for ahead in range(SLOTS - 1):
            laid = [parcels.put("server", [small]) for _ in range(ahead)]
            taker.took("a", max([*laid, parcels.put("server", [large])]), 0)
        own = parcels._boards.own
        assert own is not None
        memory = os.fstat(own.fd).st_blocks * 512
        assert parcels.put("server", [large]), "there is room for large ones still"
        assert memory <= parcels_module.MEMORY_BYTES_MAX + parcels_module._FORM.head_bytes

    with_clients(scene)


def test_workers_that_leave_free_their_places_and_their_memory_for_those_that_come() -> None:
    """Their links do not end, and there are no more places on a board than peers that may share memory."""

    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 3):
            await turn(clients, number)
        parcels = server.parts.tenure.parcels
        here = one_server.view(2)
        for generation in range(2, 2 * ROWS, 2):
            many = tuple(replace(here.members[1], id=f"w{generation}.{at}") for at in range(8))
            parcels.begin(View(generation, (*here.members, *many), True))
            parcels._boards.meet(one.id for one in many)
            parcels.begin(View(generation + 1, here.members, True))
        assert {*parcels._boards.met()} == {*WORKERS}
        assert parcels.reaches("a")

    with_clients(scene)


def test_a_push_beyond_those_that_may_wait_is_refused_before_its_parcel_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a small message without end, about one parcel, would cost the server a copy each time."""

    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            await turn(clients, number)
        parcels, client = server.parts.tenure.parcels, clients[0]
        before = parcels.bytes_shared
        refused = asyncio.Event()

        def crowded(*given: object) -> bool:
            refused.set()
            return True

        monkeypatch.setattr(intake_module, "crowded", crowded)
        client.push(4, Pushes(torch.ones(SIZE), {}), (0,) * 4)
        await refused.wait()
        assert client._exchanges.parcels._slots, "the push lies there"
        assert parcels.bytes_shared == before

    with_clients(scene)


@pytest.mark.parametrize("drops", ["server", "worker", "both"])
def test_a_peer_that_was_out_of_the_view_and_comes_back_by_the_same_link_shares_memory_again(drops: str) -> None:
    async def scene(server: Server, clients: list[Client]) -> None:
        for number in range(1, 4):
            await turn(clients, number)
        view, sides = (
            one_server.view(1),
            {"server": server.parts.tenure.parcels, "worker": clients[0]._exchanges.parcels},
        )
        other = {"server": "a", "worker": "server"}
        for generation in (2, 4, 6):
            for side, parcels in sides.items():
                if drops in (side, "both"):
                    left = tuple(one for one in view.members if one.id != other[side])
                    parcels.begin(View(generation, left, True))
                    parcels.begin(replace(view, generation=generation + 1))
            for number in range(2 * generation, 2 * generation + 4):
                for pulled in await turn(clients, number):
                    assert torch.equal(pulled, due(number))
            assert sides["server"].reaches("a")
            assert sides["worker"].reaches("server")
        assert not server.endpoint.refused
        assert not server.endpoints["a"].refused

    with_clients(scene)
