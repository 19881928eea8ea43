"""What only real sockets show: who gets in, what hostile bytes do there, and what really crosses the wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import zmq
from conformance import ask, eventually, solve
from town import FAILED, LOCAL, SUCCEEDED, Town

from samovar.protocols.addresses import split_address
from samovar.protocols.link.congestion import WINDOW_BYTES_MAX
from samovar.protocols.link.lane import Pulse, cost_bytes
from samovar.protocols.link.misbehaviour import Refusal
from samovar.protocols.wire.frames import HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, encode
from samovar.protocols.zeromq import transport as zeromq
from samovar.protocols.zeromq.reader import MESSAGES_MAX
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town() as town:
        yield town


@pytest.mark.parametrize("admitted", [True, False], ids=["admitted", "not admitted"])
async def test_only_an_admitted_key_gets_in_and_no_message_of_another_key_arrives(town: Town, admitted: bool) -> None:
    b, friend, keys = town.station(), town.station(), KeyPair.new()
    if admitted:
        b.transport.admit(keys.public)
    caller = town.caller(b, keys)
    await caller.send(b"let me in", b"")
    assert await caller.event(SUCCEEDED, FAILED) == (SUCCEEDED if admitted else zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    if admitted:
        assert await b.heard() == (keys.public, "let me in")
    friend.call(b)
    friend.say(b, "and now?")
    assert await b.heard() == (friend.id, "and now?")
    assert b.garbage == []


async def test_an_unencrypted_caller_is_refused(town: Town) -> None:
    b, friend = town.station(), town.station()
    caller = town.caller(b, None, name=friend.id)
    await caller.send(b"it is me", b"")
    await caller.event(FAILED)
    friend.call(b)
    friend.say(b, "no, me")
    assert await b.heard() == (friend.id, "no, me")


async def test_a_door_that_would_let_strangers_in_is_never_opened(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(request: list[bytes], domain: bytes, admitted: set[str]) -> list[bytes]:
        return [*map(bytes, request[:2]), b"200", b"OK", b"somebody", b""]

    with monkeypatch.context() as patch:
        patch.setattr(zeromq, "verdict", anybody)
        address = town.station().address  # of one that did not test itself
        with pytest.raises(RuntimeError, match="let an unknown key in; refusing to start"):
            await town.endpoint(listen=address.rpartition(":")[0] + ":0")
    await town.endpoint()


async def test_a_self_test_without_an_answer_has_failed(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "_SELF_TEST_S", 0)
    with pytest.raises(RuntimeError, match="did not answer a stranger's handshake"):
        await town.endpoint()


async def test_without_its_doorman_the_door_stays_shut(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    bind = zmq.Socket.bind
    with monkeypatch.context() as patch:
        patch.setattr(zmq.Socket, "bind", lambda self, to: None if to.startswith("inproc") else bind(self, to))
        b, keys = town.station(), KeyPair.new()
    b.transport.admit(keys.public)
    assert await town.caller(b, keys).event(SUCCEEDED, FAILED) != SUCCEEDED


async def test_a_claimed_name_gives_no_caller_the_identity_or_place_of_another(town: Town) -> None:
    b, first, second = town.station(), KeyPair.new(), KeyPair.new()
    for keys in (first, second):
        b.transport.admit(keys.public)
    owner = town.caller(b, first, name=second.public)
    await owner.send(b"I say that I am the second", b"")
    assert await b.heard() == (first.public, "I say that I am the second")
    thief = town.caller(b, second, name=second.public)
    await thief.send(b"the same name", b"")
    await thief.event(SUCCEEDED)
    assert b.transport.post(first.public, b"for the first", b"") > 0
    assert await owner.socket.recv_multipart() == [b"for the first", b""]
    assert not await thief.socket.poll(0)


HEADER = encode(Pulse(0, 0, 0.0), 0, incarnation=1, towards=0, seq=0)
BAD = {
    "one frame": ([HEADER], "a message of 1 frames"),
    "three frames": ([HEADER, b"", b""], "a message of 3 frames"),
    "very many frames": ([HEADER, *[b"x"] * 20_000], "a message of 20001 frames"),
    "two empty frames": ([b"", b""], "a header that cannot be taken"),
    "garbage for a header": ([b"\xc1" * 40, b""], "a header that cannot be taken"),
    "half a header": ([HEADER[:-1], b""], "a header that cannot be taken"),
    "a header that is too long": ([bytes(HEADER_BYTES_MAX + 1), b""], "a header of 262145 bytes"),
    "a header in the payload's place": ([b"", HEADER], "a header that cannot be taken"),
    "a payload that is not due": ([HEADER, b"x"], "Pulse with 1 bytes of payload"),
    "another version": ([b"\x91\x63", b""], "speaks protocol version 99"),
}


@pytest.mark.parametrize(("frames", "said"), BAD.values(), ids=BAD.keys())
async def test_bad_frames_of_an_admitted_key_are_refused_and_the_others_go_on(
    town: Town, frames: list[bytes], said: str
) -> None:
    a, b, keys = await town.endpoint(), await town.endpoint(), KeyPair.new()
    solve(b)
    b.admit(a.id)
    b.admit(keys.public)
    a.dial(b.id, b.address)
    caller = town.caller(b, keys)
    await caller.send(*frames)
    await eventually(lambda: keys.public in b.refused)
    assert said in b.refused[keys.public]
    assert list(b.refused) == [keys.public]
    told: list[Refusal] = []
    b.on_refused.append(told.append)
    b._trust.forgive(asyncio.get_running_loop().time())
    assert f"of the key {keys.public} at 127.0.0.1 not taken" in str(told[0]), "and where it came from"
    assert await ask(a, b, 1) == 2


async def test_the_connection_of_a_key_that_is_cut_off_is_closed_and_it_may_call_again(town: Town) -> None:
    a, keys = await town.endpoint(), KeyPair.new()
    a.admit(keys.public)
    for _ in range(2):
        caller = town.caller(a, keys)
        await caller.event(SUCCEEDED)
        for _ in range(20):
            await caller.send(b"\xc1", b"")
        await caller.event(zmq.EVENT_DISCONNECTED)
    assert "cannot be taken" in a.refused[keys.public]


async def test_a_frame_beyond_the_limit_is_cut_off_and_one_at_the_limit_comes(town: Town) -> None:
    b, friend, keys = town.station(), town.station(), KeyPair.new()
    b.transport.admit(keys.public)
    caller = town.caller(b, keys)
    await caller.send(bytes(HEADER_BYTES_MAX), bytes(PAYLOAD_BYTES_MAX))
    _, header, payload, _ = await b.frames.get()
    assert (len(header), len(payload)) == (HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX)
    await caller.send(b"too much", bytes(PAYLOAD_BYTES_MAX + 4097))
    await caller.event(zmq.EVENT_DISCONNECTED)
    friend.call(b)
    friend.say(b, "still there?")
    assert await b.heard() == (friend.id, "still there?")
    assert b.garbage == []


async def test_an_address_that_cannot_be_had_is_told_with_advice(town: Town) -> None:
    taken = town.station().address
    for address, why in ((taken, "the port is in use"), ("tcp://192.0.2.1:0", "this machine has no such address")):
        with pytest.raises(OSError, match=f"cannot listen on {address}: {why}; choose another with --listen"):
            await town.endpoint(listen=address)


@pytest.mark.parametrize("insecure", [False, True], ids=["curve", "insecure"])
async def test_the_bytes_that_are_counted_are_the_bytes_that_cross_the_wire(town: Town, insecure: bool) -> None:
    """To the byte, once connected. The handshake is no message's and counted to none: it is less than 1 KiB."""
    a, b = town.station(insecure=insecure), town.station(insecure=insecure)
    proxy, address = await town.proxy(b.address)
    a.call(b, address)
    b.transport.admit(a.id)
    handshake = []
    for here, there, crossed in ((a, b, lambda: proxy.up), (b, a, lambda: proxy.down)):  # b by a's own connection
        first = here.say(there, "first")
        await there.frames.get()
        handshake.append(crossed() - first)
    assert 64 < min(handshake) <= max(handshake) < 1024
    for size in (0, 1, 221, 222, 223, 254, 255, 256, 257, 70_000, PAYLOAD_BYTES_MAX):
        for here, there, crossed in ((a, b, lambda: proxy.up), (b, a, lambda: proxy.down)):
            before = crossed()
            posted = here.transport.post(there.id, bytes(min(size, HEADER_BYTES_MAX)), bytes(size))
            *_, received = await there.frames.get()
            assert posted == received == crossed() - before


async def test_silent_connections_hold_up_no_peer_and_are_closed(town: Town) -> None:
    """500 of them, as in CVE-2020-15166; some begin a handshake and stop in its middle."""
    a, b, late = [await town.endpoint() for _ in range(3)]
    solve(b)
    a.dial(b.id, b.address)
    b.admit(a.id)
    assert await ask(a, b, 0) == 1
    silent = [await asyncio.open_connection(*split_address(b.address)) for _ in range(500)]
    for n, (_, writer) in enumerate(silent):
        writer.write((b"", b"\xff", b"\xff" + bytes(8) + b"\x7f\x03", b"GET / HTTP/1.1\r\n\r\n")[n % 4])
    b.admit(late.id)
    late.dial(b.id, b.address)
    for n in range(20):
        assert await asyncio.gather(ask(a, b, n), ask(late, b, n)) == [n + 1, n + 1]
    for reader, writer in silent:
        with contextlib.suppress(ConnectionError):
            await reader.read()  # to its end, which comes after the time that a handshake may take
        writer.close()
    assert b.refused == {}


async def test_a_large_frame_on_a_slow_way_is_not_cut(town: Town) -> None:
    a, b = town.station(), town.station()
    _, address = await town.proxy(b.address, rate_Bps=800_000)
    a.call(b, address)
    a.transport.post(b.id, b"large", bytes(PAYLOAD_BYTES_MAX))
    assert await b.heard() == (a.id, "large")
    assert [a.reconnected.get_nowait()] == [b.id]
    assert a.reconnected.empty()


async def test_a_connection_that_takes_nothing_holds_up_no_other_peer(town: Town) -> None:
    a, stuck, c = town.station(), town.station(), town.station()
    proxy, address = await town.proxy(stuck.address)
    a.call(stuck, address)
    a.call(c)
    a.say(stuck, "first")
    assert await stuck.heard() == (a.id, "first")
    proxy.flowing.clear()
    payload, posted = bytes(PAYLOAD_BYTES_MAX), 40
    for n in range(posted):
        assert a.transport.post(stuck.id, str(n).encode(), payload) > PAYLOAD_BYTES_MAX
        a.say(c, str(n))
        assert await c.heard() == (a.id, str(n))
    assert stuck.frames.qsize() < posted
    proxy.flowing.set()
    assert [await stuck.heard() for _ in range(posted)] == [(a.id, str(n)) for n in range(posted)]


async def test_no_wake_up_is_missed_even_without_the_watchdog(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "_WATCHDOG_S", 3600.0)
    a, b = town.station(), town.station()
    a.call(b)
    b.call(a)
    for burst in (1, 2, 127, 128, 129, 1000, *[1] * 500, 300, *[2] * 200):
        for n in range(burst):
            a.say(b, str(n))
        for n in range(burst):
            assert await b.heard() == (a.id, str(n))
            b.say(a, str(n))
        for n in range(burst):
            assert await a.heard() == (b.id, str(n))


async def test_a_small_message_that_is_kept_keeps_nothing_but_itself(town: Town) -> None:
    """A view of it would pin the whole buffer that it was read into."""
    a, b = town.station(), town.station()
    a.call(b)
    for size, kind in ((400, bytes), (PAYLOAD_BYTES_MAX, memoryview)):
        a.transport.post(b.id, b"header", bytes(size))
        _, header, payload, _ = await b.frames.get()
        assert (type(header), type(payload)) == (bytes, kind)


async def test_closing_before_opening_and_twice_is_harmless(town: Town) -> None:
    ZeroMQTransport(KeyPair.new(), listen=LOCAL).close()
    opened = town.station().transport
    for _ in range(2):
        opened.close()
    assert opened._context is not None
    assert opened._context.closed


def test_no_window_holds_more_messages_than_a_socket_does() -> None:
    """Z1: beyond that a ROUTER would drop them."""
    assert WINDOW_BYTES_MAX // cost_bytes(b"", b"") < MESSAGES_MAX
