"""Peers that cannot be dialled: answers on their own connections, and streams that a relay carries."""

import asyncio
import contextlib
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from conformance import Parcel, World, ask, collect, eventually, numbers, over, solve
from promises_of_relays import PROMISES_OF_RELAYS, pair
from tiers import soaked
from town import Town, left, no_more_than
from worlds import CurveRelays, InsecureRelays, SimulatedRelays

from samovar.protocols.addresses import NOWHERE
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.pipes import Pipe
from samovar.protocols.relay.ends import Ends, in_order
from samovar.protocols.relay.messages import RELAY
from samovar.protocols.relay.relay import Relay
from samovar.protocols.zeromq.pipes import SocketPipes

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town() as town:
        yield town


@pytest.mark.parametrize("promise", PROMISES_OF_RELAYS, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("world", [SimulatedRelays, CurveRelays, soaked(InsecureRelays)])
def test_relays_keep_their_promises(world: type[World], promise) -> None:
    world(lossy=False).try_promise(promise, long=False)


PLAIN = b"what a says to b is for b alone; " * 300


async def seen_by_the_relay(world: World) -> bytes:
    """All bytes that relays carry while a tells b something."""
    a, b = await pair(world)
    seen = bytearray()
    for relay in world.carriers.values():

        def pass_on(leg, data, before=relay._pass_on) -> None:
            seen.extend(data)
            before(leg, data)

        relay._pass_on = pass_on  # type: ignore[method-assign]
    at_b = collect(b)
    await over(a).send(b.id, Parcel(1), PLAIN)
    await a.drain()
    assert bytes(at_b[Parcel][0].payload) == PLAIN
    return bytes(seen)


@pytest.mark.parametrize(("world", "readable"), [(CurveRelays, False), (InsecureRelays, True)])
def test_a_relay_cannot_read_the_bytes_of_an_encrypted_run(world: type[World], readable: bool) -> None:
    async def promise(world: World) -> None:
        seen = await seen_by_the_relay(world)
        assert len(seen) > len(PLAIN)
        assert (PLAIN[:33] in seen) == readable

    world(lossy=False).try_promise(promise, long=False)


def test_bytes_that_a_relay_changes_are_noticed_and_sent_again() -> None:
    garbled = 0

    async def promise(world: World) -> None:
        a, b = await pair(world)
        assert await ask(a, b, 1) == 2
        for relay in world.carriers.values():

            def pass_on(leg, data, before=relay._pass_on) -> None:
                nonlocal garbled
                if len(data) > 10_000 and not garbled:
                    garbled, data = 1, bytes(data[:5000]) + bytes([data[5000] ^ 1]) + bytes(data[5001:])
                before(leg, data)

            relay._pass_on = pass_on  # type: ignore[method-assign]
        at_b = collect(b)
        for n in range(10):
            await over(a).send(b.id, Parcel(n), PLAIN * 3)
        await a.drain()
        assert numbers(at_b[Parcel]) == list(range(10))
        assert {bytes(envelope.payload) for envelope in at_b[Parcel]} == {PLAIN * 3}

    CurveRelays(lossy=False).try_promise(promise, long=False)
    assert garbled


def listening() -> Counter[str]:
    """The hosts at which this process listens."""
    found = Counter[str]()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family == socket.AF_INET and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found[one.getsockname()[0]] += 1
    return found


async def test_an_undialable_peer_listens_at_no_address_of_the_network(town: Town) -> None:
    before = listening()
    a = await town.endpoint(listen=NOWHERE)
    assert a.address == NOWHERE
    assert {*(listening() - before)} == {"127.0.0.1"}
    await town.endpoint(listen="tcp://*:0")
    assert {*(listening() - before)} == {"127.0.0.1", "0.0.0.0"}  # what is not there before


async def two_behind_a_relay(town: Town) -> tuple[Endpoint, Endpoint, Endpoint]:
    """Two peers that cannot be dialled, and a relay that carries between them."""
    a, b = await town.endpoint(listen=NOWHERE), await town.endpoint(listen=NOWHERE)
    r = await town.endpoint()
    Relay(Channel(r, RELAY), lambda: {a.id, b.id})
    for one in (a, b):
        assert one.pipes is not None
        Ends(Channel(one, RELAY), one.pipes, lambda far: [r.id])
        for other in {a, b, r} - {one}:
            one.dial(other.id, other.address)
            other.dial(one.id, one.address)
    return a, b, r


async def test_bytes_through_a_pipe_come_from_no_host_and_count_once(town: Town) -> None:
    a, b, r = await two_behind_a_relay(town)
    at_b = collect(b)
    for n in range(10):
        await over(a).send(b.id, Parcel(n), bytes(100_000))
    await a.drain()
    assert len(at_b[Parcel]) == 10
    assert b.whence(a.id) == NOWHERE
    assert r.whence(a.id) == "127.0.0.1"
    for count in (a.bytes_sent, b.bytes_received, r.bytes_sent, r.bytes_received):
        assert 1_000_000 < count < 1_100_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what process connects")
async def test_no_other_process_uses_up_the_streams_of_a_peer_that_cannot_be_dialled() -> None:
    pipes, came = SocketPipes(), list[Pipe]()
    pipes.wanted = lambda peer, pipe: came.append(pipe)
    doorstep = pipes.doorstep("b")
    name = doorstep.address.removeprefix("ipc://@")
    knock = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); assert s.recv(1) == b''"
    try:
        for _ in range(3):
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", knock)
            assert await other.wait() == 0, "it was hung up on"
        assert not came
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(f"\0{name}")
            await eventually(lambda: len(came) == 1)
    finally:
        doorstep.close()
        pipes.close()


async def test_frames_that_wait_for_a_given_up_caller_go_out_unchanged(town: Town) -> None:
    r, b = town.station(), town.station(listen=NOWHERE)
    proxy, address = await town.proxy(r.address)
    r.transport.admit(b.id)
    b.transport.admit(r.id)
    r.transport.dial(b.id, NOWHERE)
    b.transport.dial(r.id, address)
    assert (await r.frames.get())[0] == b.id  # it has announced its connection
    proxy.flowing.clear()
    payloads = [bytearray(b"x" * 1_000_000) for _ in range(30)]
    for payload in payloads:
        assert r.transport.post(b.id, b"header", payload)
    r.transport.hang_up(b.id)
    for payload in payloads:
        payload[:] = b"y" * 1_000_000
    assert proxy.down < 30_000_000  # much of it was not under way yet
    proxy.flowing.set()
    for _ in payloads:
        assert bytes((await b.frames.get())[2]) == b"x" * 1_000_000


def test_an_undialable_peer_has_twice_the_patience_for_its_first_call() -> None:
    async def promise(world: World) -> None:
        loop, c, a = asyncio.get_running_loop(), await world.endpoint("c"), world.transport("a")
        lost_s: list[float] = []
        c.on_lost.append(lambda peer, why: lost_s.append(loop.time()))
        c.dial(a.id, NOWHERE)
        over(c).watch({a.id})
        await eventually(lambda: bool(lost_s))
        assert 2 * world.patience_s <= lost_s[0] <= 2.5 * world.patience_s
        came = await world.endpoint("a")
        solve(came)
        c.dial(a.id, NOWHERE)
        assert await ask(c, came, 1) == 2
        over(c).watch({a.id})
        world.ways["a"].silent, began_s = True, loop.time()
        await eventually(lambda: len(lost_s) == 2)
        assert lost_s[1] - began_s <= 1.5 * world.patience_s

    SimulatedRelays(lossy=False).try_promise(promise, long=False)


def test_pairs_are_spread_over_the_relays_and_both_ends_agree() -> None:
    relays, peers = [f"r{n}" for n in range(4)], [f"p{n}" for n in range(30)]
    pairs = [(one, other) for one in peers for other in peers if one < other]
    assert all(in_order(relays, *pair) == in_order(reversed(relays), *reversed(pair)) for pair in pairs)
    first = Counter(in_order(relays, *pair)[0] for pair in pairs)
    assert min(first.values()) > 0.6 * len(pairs) / len(relays)


async def test_peers_that_talked_through_a_relay_leave_nothing() -> None:
    async def life() -> None:
        async with Town() as town:
            a, b, _ = await two_behind_a_relay(town)
            solve(b)
            assert await ask(a, b, 1) == 2
            for n in range(20):  # much is under way when they end
                over(a).offer(b.id, Parcel(n), bytes(100_000))

    await life()
    before = left()
    for _ in range(3):
        await life()
    await eventually(lambda: no_more_than(before))
