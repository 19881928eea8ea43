"""Ways between real transports: who cannot be reached now is reached later, and what is given up leaves nothing."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import zmq
from conformance import Postcard, ask, collect, eventually, numbers, over, solve
from town import LOCAL, Station, Town, left, no_more_than

from samovar.protocols.wire.frames import Buffer
from samovar.protocols.zeromq.reader import Origin
from samovar.protocols.zeromq.routes import OutLink, Ways
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town() as town:
        yield town


async def test_a_key_that_is_refused_first_and_admitted_a_moment_later_gets_through(town: Town) -> None:
    a, b = await town.endpoint(), await town.endpoint()
    solve(b)
    a.dial(b.id, b.address)
    asking = asyncio.create_task(ask(a, b, 1))
    refused = f"it refused our key at {b.address}"
    await eventually(lambda: a._transport.trouble(b.id) == refused)
    b.admit(a.id)
    assert await asking == 2
    assert a._transport.trouble(b.id) is None
    assert a.is_lost(b.id) is None


async def test_a_key_that_is_admitted_after_many_refusals_gets_through(town: Town) -> None:
    a, b = town.station(), town.station()
    tries: list[str] = []
    a.transport.dial(b.id, b.address)
    (link,) = a.transport._ways
    link.redial._call, call = lambda: (tries.append("once more"), call()), link.redial._call
    a.say(b, "at last")
    await eventually(lambda: len(tries) == 3)
    b.transport.admit(a.id)
    assert await b.heard() == (a.id, "at last")


@pytest.mark.parametrize("insecure", [False, True], ids=["curve", "insecure"])
async def test_a_peer_back_at_its_address_is_reached_again(town: Town, insecure: bool) -> None:
    a, b, keys = town.station(insecure=insecure), None, KeyPair.new()
    for returned in range(3):
        address = b.address if b else LOCAL
        b = town.station(keys, listen=address, insecure=insecure)
        if insecure:
            b.transport.id = "b"
        b.transport.admit(a.id)
        a.transport.dial(b.id, b.address)
        a.say(b, f"welcome {returned}")
        assert await b.heard() == (a.id, f"welcome {returned}")
        assert await a.reconnected.get() == b.id
        b.transport.close()
        await eventually(lambda: a.transport.trouble("b" if insecure else keys.public) is not None)


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
    writer.close()


async def test_trouble_says_why_there_is_no_way_and_the_latest_reason_counts(town: Town) -> None:
    a, there, plain = town.station(), town.station(), town.station(insecure=True)
    peers = [KeyPair.new().public for _ in range(8)]
    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for serve in (mute, babbling)]
    muted, babbled = (f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
    free = town.station()
    free.transport.close()
    handshake = "the handshake failed (is its key right, and does it encrypt as we do?)"
    for peer, address, why in (
        (there.id, there.address, "it refused our key"),
        (peers[0], there.address, handshake),
        (peers[1], plain.address, handshake),
        (peers[2], muted, handshake),
        (peers[3], babbled, "it closed the connection"),
        (peers[4], free.address, "nobody listens"),
        (peers[5], "tcp://nowhere.invalid:4000", "no answer"),
    ):
        a.transport.dial(peer, address)
        await eventually(lambda peer=peer, said=f"{why} at {address}": a.transport.trouble(peer) == said)
    for address in ("tcp://*:4000", "tcp://127.0.0.1:0", "udp://127.0.0.1:4000", "tcp://a b:1"):
        a.transport.dial(peers[6], address)
        assert repr(address) in a.transport.trouble(peers[6])
    a.transport.dial("no key", there.address)
    assert there.address in a.transport.trouble("no key")
    there.transport.close()
    await eventually(lambda: a.transport.trouble(there.id) == f"nobody listens at {there.address}")
    for server in servers:
        server.close()


async def test_a_silent_listener_is_told_from_an_absent_peer(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ZeroMQTransport._socket

    def hasty(self: ZeroMQTransport, *what: Any) -> Any:
        made = real(self, *what)
        made.handshake_ivl = 500
        return made

    monkeypatch.setattr(ZeroMQTransport, "_socket", hasty)
    a, peer = town.station(), KeyPair.new().public
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        a.transport.dial(peer, address)
        for why in ("it is there, but does not answer", "it is there, but has said nothing for seconds"):
            await eventually(lambda said=f"{why} at {address}": a.transport.trouble(peer) == said)
        a.transport.hang_up(peer)


@pytest.mark.parametrize("made", [0, 1])
async def test_a_dial_without_a_descriptor_left_is_trouble_leaves_nothing_and_may_be_tried_again(
    town: Town, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    a, b = town.station(), town.station()
    b.transport.admit(a.id)
    sockets, real = list[zmq.Socket[bytes]](), zmq.Context.socket

    def scarce(self: zmq.Context[Any], *what: Any, **how: Any) -> zmq.Socket[bytes]:
        if len(sockets) >= made:
            raise zmq.ZMQError(errno.EMFILE)
        sockets.append(real(self, *what, **how))
        return sockets[-1]

    with monkeypatch.context() as patch:
        patch.setattr(zmq.Context, "socket", scarce)
        a.transport.dial(b.id, b.address)
    assert "Too many open files" in str(a.transport.trouble(b.id))
    assert [one.closed for one in sockets] == [True] * made
    a.transport.dial(b.id, b.address)
    a.say(b, "now there is one")
    assert await b.heard() == (a.id, "now there is one")


async def test_hanging_up_drops_waiting_frames_and_later_frames_go(town: Town) -> None:
    a, b = town.station(), town.station()
    a.transport.dial(b.id, b.address)
    await eventually(lambda: a.transport.trouble(b.id) is not None)
    for n in range(10):
        assert a.say(b, f"old {n}") > 0
    a.transport.hang_up(b.id)
    assert a.say(b, "without a way") == 0
    a.call(b)
    a.say(b, "new")
    assert await b.heard() == (a.id, "new")


async def test_an_undialable_peer_is_answered_by_its_own_connection(town: Town) -> None:
    a, keys, b = town.station(), KeyPair.new(), None
    for again in range(3):  # a new connection each time: what is posted goes by the latest, and none is an error
        b = town.station(keys)
        assert a.say(b, "before you called") == 0
        b.call(a)
        b.say(a, f"call {again}")
        assert await a.heard() == (b.id, f"call {again}")
        assert await a.reconnected.get() == b.id
        assert a.say(b, f"answer {again}") > 0
        assert await b.heard() == (a.id, f"answer {again}")
        b.transport.close()
        gone = b
        await eventually(lambda there=gone: a.say(there, "to nobody") == 0)


async def test_an_answer_goes_by_the_latest_connection_even_while_an_old_one_hangs(town: Town) -> None:
    a, keys = town.station(), KeyPair.new()
    b, again = town.station(keys), town.station(keys)
    proxy, address = await town.proxy(a.address)
    b.call(a, address)
    b.say(a, "from an old network")
    await a.heard()
    proxy.flowing.clear()
    again.call(a)
    again.say(a, "from a new one")
    assert await a.heard() == (b.id, "from a new one")
    a.say(b, "answer")
    assert await again.heard() == (a.id, "answer")


NOWHERE = Origin(lambda what: -1)


def test_a_frame_that_a_dead_route_refuses_waits_for_the_out_link() -> None:
    class Stub:
        def __init__(self, failed: int = 0) -> None:
            self.failed, self.posted = failed, []

        def send(self, frames: Sequence[Buffer]) -> int:
            return self.failed

        def post(self, frames: Sequence[Buffer]) -> bool:
            self.posted.append(frames)
            return True

        def hurry(self) -> None:
            self.posted.append("soon")

    inbox, out = Stub(errno.EHOSTUNREACH), Stub()
    ways = Ways(inbox, lambda peer: None, set(), None)
    ways.add("b", OutLink("tcp://b:1", tap=out, monitor=Stub(), redial=out))
    ways.caller(b"b/route", NOWHERE)
    assert ways.post("b", b"header", b"payload")
    assert out.posted == ["soon", (b"header", b"payload")]
    inbox.failed = errno.EAGAIN  # full: this one is lost, as on any way
    ways.caller(b"b/route", NOWHERE)
    assert not ways.post("b", b"header", b"payload")


async def test_a_sender_does_not_wait_for_acknowledgements_of_a_peer_that_went(town: Town) -> None:
    a, b = await town.endpoint(), await town.endpoint()
    solve(b)
    at_b = collect(b)
    a.dial(b.id, b.address)
    b.dial(a.id, a.address)
    assert await ask(a, b, 1) == 2
    for n in range(5):
        await over(a).send(b.id, Postcard(n))
    await eventually(lambda: len(at_b[Postcard]) == 5)
    b.abort()
    await a.drain()
    assert a.is_lost(b.id) is None
    assert numbers(at_b[Postcard]) == list(range(5))


async def life(end: Callable[[Station], None]) -> None:
    """Everything that a transport may do, with much of it under way when it ends."""
    town = Town()
    a, b, c, free = (town.station() for _ in range(4))
    free.transport.close()
    a.call(b)
    b.call(a)
    c.call(a)
    a.transport.post(b.id, b"zero-copy", bytes(1 << 20))
    c.say(a, "by my own connection")
    await asyncio.gather(a.heard(), b.heard())
    a.say(c, "back")
    await c.heard()
    a.transport.dial(c.id, c.address)  # is refused
    a.transport.dial(free.id, free.address)  # is not there
    a.transport.dial("no key", b.address)
    await eventually(lambda: None not in (a.transport.trouble(c.id), a.transport.trouble(free.id)))
    for peer in (b, c, free):
        for _ in range(40):
            a.transport.post(peer.id, b"under way", bytes(1 << 16))
    for station in (a, b, c):
        end(station)
    async with town:
        pass  # what it made itself


async def test_closing_leaves_no_file_no_thread_no_task_and_no_timer() -> None:
    def hang_up_all_and_close(station: Station) -> None:
        for link in list(station.transport._ways._out):
            station.transport.hang_up(link)
        station.transport.close()

    for end in (lambda station: station.transport.close(), hang_up_all_and_close):
        await life(end)  # the first zero-copy message starts a thread of pyzmq's that stays
        before = left()
        for _ in range(3):
            await life(end)
        await eventually(lambda before=before: left() == before)


async def test_hanging_up_leaves_nothing_though_the_transport_goes_on(town: Town) -> None:
    a, b = town.station(), town.station()
    before = left()
    for _ in range(3):
        a.call(b)
        a.say(b, "hello")
        await b.heard()
        await a.reconnected.get()
        a.transport.hang_up(b.id)
        for bad in (b.address, "tcp://*:1"):
            a.transport.dial("no key", bad)
            a.transport.hang_up("no key")
    await eventually(lambda: left() == before)


async def test_an_endpoint_that_was_refused_its_address_or_aborted_leaves_nothing(town: Town) -> None:
    taken = await town.endpoint()
    for _ in range(2):
        before = left()
        with pytest.raises(OSError, match="in use"):
            await town.endpoint(listen=taken.address)
        b = await town.endpoint()
        taken.dial(b.id, b.address)
        b.admit(taken.id)
        solve(b)
        assert await ask(taken, b, 1) == 2
        b.abort()
        taken.forget(b.id)
        del b
    await eventually(lambda: no_more_than(before))


async def test_the_connections_of_a_key_that_is_let_in_no_more_are_closed(town: Town) -> None:
    a, keys, others = town.station(), KeyPair.new(), KeyPair.new()
    for key, shared in ((keys, True), (others, False)):
        a.transport.admit(key.public, shared=shared)
    guests, other = [town.caller(a, keys) for _ in range(2)], town.caller(a, others)
    for caller in (*guests, other):
        await caller.send(b"header", b"payload")
        await a.frames.get()
    a.transport.dismiss(keys.public)
    for guest in guests:
        await guest.event(zmq.EVENT_DISCONNECTED)
    await other.send(b"still", b"here")
    assert (await a.frames.get())[0] == others.public
