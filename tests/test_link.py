"""Links between incarnations: who may speak for a peer, what becomes of old frames, and that nobody talks for ever."""

import asyncio
import contextlib
import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from samovar.protocols import wire
from samovar.protocols.delivery.lane import (
    CHUNK_BYTES_MIN,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    WINDOW_BYTES_START,
    Pace,
    Pulse,
)
from samovar.protocols.delivery.link import CONTROL_QUEUE_MAX, Link, PeerLost
from samovar.protocols.endpoint import Endpoint, Envelope
from samovar.protocols.transport import Arrivals, PeerId
from samovar.protocols.wire import Buffer, Frame, Lane, PeerMisbehaved
from samovar.sims.loop import run_virtual

from .conformance import Parcel, Postcard, Riddle, Solution, ask, collect, eventually, numbers, solve


class Post:
    """A network whose frames take as long as they like, some for ever, and come to whoever has the name by then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lossy, self.frames = rng, True, 0
        self.open: dict[PeerId, Arrivals] = {}

    def send(self, sender: PeerId, to: PeerId, header: bytes, payload: Buffer) -> None:
        self.frames += 1
        copies = self.rng.choice([0, 1, 1, 1, 2]) if self.lossy else 1
        for _ in range(copies):
            delay_s = self.rng.choice([0.01, 0.02, 0.2, 5.0]) if self.lossy else 0.01
            asyncio.get_running_loop().call_later(delay_s, self.deliver, sender, to, header, bytes(payload))

    def deliver(self, sender: PeerId, to: PeerId, header: bytes, payload: bytes) -> None:
        if to in self.open:
            self.open[to].frames(sender, header, payload, len(header) + len(payload))


class PostTransport:
    machine = ""

    def __init__(self, post: Post, id: PeerId) -> None:
        self._post, self.id, self.address = post, id, f"post://{id}"

    def open(self, arrivals: Arrivals) -> None:
        self._post.open[self.id] = arrivals

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        self._post.send(self.id, peer, header, payload)
        return len(header) + len(payload)

    async def self_test(self) -> None: ...

    def dial(self, peer: PeerId, address: str) -> None: ...

    def admit(self, peer: PeerId) -> None: ...

    def hang_up(self, peer: PeerId) -> None: ...

    def trouble(self, peer: PeerId) -> str | None: ...

    def close(self) -> None:
        self._post.open.pop(self.id, None)


async def opened(post: Post, name: str, seed: int) -> Endpoint:
    endpoint = Endpoint(PostTransport(post, name), patience_s=4, rng=random.Random(seed))
    await endpoint.open()
    return endpoint


class Chaos:
    """Two peers that send, forget, dial, and restart, each at any moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.post = Post(random.Random(seed + 1))
        self.peers: dict[str, Endpoint] = {}
        self.last: dict[tuple[int, int, type], int] = defaultdict(int)
        self.meant_for: dict[int, int] = {}
        self.happened = Counter[str]()
        self.sent = 0
        self.sending: list[asyncio.Task] = []

    async def start(self, name: str) -> None:
        endpoint = await opened(self.post, name, self.rng.randrange(2**32))
        self.peers[name] = endpoint
        endpoint.on_lost.append(lambda peer, why: self.happened.update(["lost"]))
        for kind in (Parcel, Postcard):
            endpoint.on(kind, lambda envelope: self.arrived(endpoint, envelope))
        solve(endpoint)

    def arrived(self, here: Endpoint, envelope: Envelope) -> None:
        """Once, in order, and if its sender knew for which incarnation it was, then for this one."""
        n, kind = envelope.message.n, type(envelope.message)
        assert n > self.last[id(here), n >> 32, kind], "twice, or out of order"
        self.last[id(here), n >> 32, kind] = n
        assert self.meant_for[n] in (0, here._links.known(envelope.sender).incarnation), "meant for a past self"
        self.happened["arrived"] += 1
        envelope.done()

    def send(self, here: Endpoint, there: PeerId) -> None:
        self.sent += 1
        n = (id(here) % (1 << 30) << 32) + self.sent

        def remember() -> None:
            link = here._links.get(there)
            self.meant_for[n] = link.towards if link is not None and link.lost is None else 0

        async def ship(size: int) -> None:
            remember()
            await here.send(there, Parcel(n), bytes(size))

        if self.rng.random() < 0.5:
            remember()
            here.post(there, Postcard(n))
        else:
            self.sending.append(asyncio.create_task(ship(self.rng.choice([10, 50_000]))))

    async def act(self) -> None:
        name = self.rng.choice("ab")
        here, there = self.peers[name], "ba"["ab".index(name)]
        act = self.rng.choices(["send", "wait", "forget", "dial", "restart", "watch"], [60, 15, 2, 5, 2, 2])[0]
        self.happened[act] += 1
        if act == "send":
            self.send(here, there)
        elif act == "forget":
            here.forget(there)
        elif act == "dial":
            here.dial(there, "")
        elif act == "watch":
            here.watch({there})
        elif act == "restart":
            here.abort()
            await self.start(name)
        else:
            await asyncio.sleep(self.rng.choice([0.01, 0.1, 1.0]))


async def chaos(seed: int) -> Counter[str]:
    faults: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
    world = Chaos(seed)
    for name in "ab":
        await world.start(name)
    for _ in range(150):
        await world.act()
    world.post.lossy = False
    await asyncio.sleep(30)
    for task in world.sending:
        task.cancel()
    ended = await asyncio.gather(*world.sending, return_exceptions=True)
    assert all(end is None or isinstance(end, PeerLost | asyncio.CancelledError) for end in ended)
    a, b = world.peers["a"], world.peers["b"]
    for here, there in ((a, b), (b, a)):
        here.dial(there.id, "")
        before = world.post.frames
        assert await ask(here, there, 1) == 2
        assert world.post.frames - before < 60
    a.watch(set())
    b.watch(set())
    await asyncio.sleep(10)
    before = world.post.frames
    await asyncio.sleep(60)
    assert world.post.frames == before, "an idle link is not silent"
    for endpoint in (a, b):
        endpoint.abort()
    assert faults == []
    return world.happened


def test_in_any_chaos_messages_come_once_in_order_and_to_whom_they_were_meant() -> None:
    happened = sum((run_virtual(chaos(seed)) for seed in range(60)), Counter())
    assert min(happened[what] for what in ("arrived", "lost", "forget", "restart", "watch")) > 60, happened


class Side:
    """One end of a link, whose frames go to a list and are handed over by the test."""

    def __init__(self, name: str, incarnation: int, clock: Callable[[], float]) -> None:
        self.frames: list[tuple[bytes, Buffer]] = []
        self.delivered: list[object] = []
        self.link = Link(
            name,
            incarnation,
            clock=clock,
            post=lambda header, payload: self.frames.append((header, payload)),
            deliver=lambda message, payload, cost: self.delivered.append(message),
            credit_bytes=lambda: 1 << 20,
            pace=Pace(patience_s=8.0),
        )

    def take(self, frames: list[tuple[bytes, Buffer]]) -> None:
        for header, payload in frames:
            self.link.arrived(wire.decode(header, len(payload)), payload, len(header) + len(payload) + 256)

    def sent(self) -> list[tuple[bytes, Buffer]]:
        sent, self.frames = self.frames, []
        return sent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def settle(*sides: Side) -> int:
    """Hand frames over between two until nobody says anything more; returns how many there were."""
    a, b, count = *sides, 0
    while a.frames or b.frames:
        for here, there in ((a, b), (b, a)):
            frames = here.sent()
            count += len(frames)
            there.take(frames)
        assert count < 100, "they talk for ever"
    return count


def bound() -> tuple[Side, Side]:
    a, b = Side("b", 1 << 40, Clock()), Side("a", 2 << 40, Clock())
    a.link.pulse(ping=True)
    settle(a, b)
    assert (a.link.towards, b.link.towards) == (b.link.incarnation, a.link.incarnation)
    return a, b


def test_two_links_bind_within_few_frames_whoever_speaks_first() -> None:
    for speakers in ("a", "b", "ab"):
        a, b = Side("b", 1 << 40, Clock()), Side("a", 2 << 40, Clock())
        a.link.post(Postcard(1))
        b.link.post(Postcard(2))
        for name, side in (("a", a), ("b", b)):
            if name in speakers:
                side.link.pulse(ping=True)
        assert settle(a, b) <= 10
        assert (a.delivered, b.delivered) == ([Postcard(2)], [Postcard(1)])
        assert a.link.retransmitted == b.link.retransmitted == 0


def test_old_frames_of_a_restarted_peer_do_not_end_its_new_link_nor_reach_anybody() -> None:
    a, b = bound()
    a.link.post(Postcard(1))
    a.link.pulse(ping=True)
    old = a.frames.copy()
    settle(a, b)
    again, fresh = Side("b", 3 << 40, Clock()), Side("a", 4 << 40, Clock())
    again.link.pulse(ping=True)
    with pytest.raises(PeerLost, match="restarted"):
        settle(again, b)
    settle(again, fresh)
    again.link.post(Postcard(2))
    settle(again, fresh)
    fresh.take(old)
    again.take(fresh.sent())  # what `fresh` asks the past self is heard by the one that lives
    again.link.post(Postcard(3))
    settle(again, fresh)
    assert fresh.delivered == [Postcard(2), Postcard(3)]
    assert fresh.link.lost is again.link.lost is None


def test_an_old_proof_does_not_bind() -> None:
    a, b = Side("b", 1 << 40, Clock()), Side("a", 2 << 40, Clock())
    b.link.pulse(ping=True)
    a.take(b.sent())
    proof = a.sent()  # a's pong to b's ping, which b will hear only after a has restarted
    again = Side("b", 3 << 40, Clock())
    again.link.pulse(ping=True)
    settle(again, b)
    assert b.link.towards == again.link.incarnation
    b.take(proof)
    settle(again, b)
    assert b.link.towards == again.link.incarnation
    assert b.link.lost is None


def test_a_pong_to_another_link_of_ours_proves_nothing() -> None:
    b = Side("a", 2 << 40, Clock())
    b.link.pulse(ping=True)
    for pong in (0, 1, 2 << 40, (2 << 40) + 1000, 2**63 - 1):
        b.link.arrived(Frame(7, 0, Lane.LINK, 0, Pulse((0, 0), (0, 0), 0, pong)), b"", 0)
        assert b.link.towards == 0
    b.link.arrived(Frame(7, 0, Lane.LINK, 0, Pulse((0, 0), (0, 0), 0, (2 << 40) + 1)), b"", 0)
    assert b.link.towards == 7


def test_a_message_from_an_incarnation_that_proved_nothing_is_not_delivered() -> None:
    a, b = bound()
    for incarnation in (9, a.link.incarnation + 1):
        b.link.arrived(Frame(incarnation, b.link.incarnation, Lane.CONTROL, 0, Postcard(1)), b"", 300)
    for towards in (0, b.link.incarnation + 1):
        b.link.arrived(Frame(a.link.incarnation, towards, Lane.CONTROL, 0, Postcard(1)), b"", 300)
    assert b.delivered == []
    with pytest.raises(PeerMisbehaved):
        b.link.arrived(Frame(0, b.link.incarnation, Lane.CONTROL, 0, Postcard(1)), b"", 300)


def test_who_is_bound_to_a_past_self_lets_go() -> None:
    _, b = bound()
    again = Side("b", 3 << 40, Clock())
    again.link.pulse(ping=True)
    with pytest.raises(PeerLost):
        settle(again, b)
    assert again.link.towards == 0  # `b` was bound to another: not to this one, though it was proved to live
    fresh = Side("a", 4 << 40, Clock())
    fresh.link.pulse(ping=True)
    settle(again, fresh)
    assert (again.link.towards, fresh.link.towards) == (fresh.link.incarnation, again.link.incarnation)


def test_only_what_a_pong_reports_missing_is_sent_again() -> None:
    a, b = bound()
    for n in range(3):
        a.link.post(Postcard(n))
    frames = a.sent()
    b.take([frames[0], frames[2]])
    a.link.pulse(ping=True)
    a.link.post(Postcard(3))  # after the ping: its pong says nothing of this one
    settle(a, b)
    assert b.delivered == [Postcard(n) for n in range(4)]
    assert a.link.retransmitted == 1 + 1  # the lost one, and the one that had come early: it was not yet in order
    assert not a.link.busy


def test_a_peer_that_breaks_the_rules_is_said_to() -> None:
    a, b = bound()
    here, there = b.link.incarnation, a.link.incarnation

    def pulse(received: tuple[int, ...], limit: tuple[int, ...]) -> Frame:
        return Frame(there, here, Lane.LINK, 0, Pulse(received, limit, 0, 0))

    for hostile in (pulse((1, 0), (0, 0)), pulse((0,), (0, 0)), pulse((0, 0), ()), pulse((0, 2**63 - 1), (0, 0))):
        with pytest.raises(PeerMisbehaved):
            b.link.arrived(hostile, b"", 0)
    for seq in range(2):
        b.link.arrived(Frame(there, here, Lane.DATA, 1000 + seq, Parcel(seq)), bytes(1 << 20), 1 << 20)
    with pytest.raises(PeerMisbehaved, match="beyond its credit"):
        b.link.arrived(Frame(there, here, Lane.DATA, 2000, Parcel(9)), bytes(1 << 20), 1 << 20)
    assert b.delivered == []
    b.link.arrived(pulse((0, 0), (0, 0)), b"", 0)  # a credit of 0 takes nothing back
    b.link.post(Postcard(1))
    assert len(b.frames) > 0


def test_a_peer_that_takes_nothing_is_given_up_when_too_much_waits_for_it() -> None:
    side = Side("b", 1 << 40, Clock())
    for n in range(CONTROL_QUEUE_MAX):
        side.link.post(Postcard(n))
    with pytest.raises(PeerLost, match="too long"):
        side.link.post(Postcard(0))
    assert not side.link.busy


def test_peers_of_different_versions_tell_each_other_once_and_fall_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        theirs = post.open["b"].frames

        def other(header: bytes) -> bytes:
            """The same header of the next version, as which b hears a, and a hears b."""
            assert header[1] == wire.VERSION
            return bytes([header[0], wire.VERSION + 1, *header[2:]])

        ours = post.open["a"].frames
        post.open["a"] = dataclasses.replace(post.open["a"], frames=lambda s, h, p, n: ours(s, other(h), p, n))
        post.open["b"] = dataclasses.replace(post.open["b"], frames=lambda s, h, p, n: theirs(s, other(h), p, n))
        lost: list[str] = []
        a.on_lost.append(lambda peer, why: lost.append(why))
        b.on_lost.append(lambda peer, why: lost.append(why))
        a.watch({"b"})
        b.watch({"a"})
        with pytest.raises(PeerLost, match="version 4, this side speaks 3"):
            await ask(a, b, 1)
        await asyncio.sleep(20)
        assert len(lost) == 2
        assert post.frames < 20
        assert "version" in a.refused["b"]
        assert "version" in b.refused["a"]
        post.open["a"] = dataclasses.replace(post.open["a"], frames=ours)
        post.open["b"] = dataclasses.replace(post.open["b"], frames=theirs)
        solve(b)
        a.dial("b", "")
        assert await ask(a, b, 1) == 2  # after one of the two was updated
        a.abort()
        b.abort()

    run_virtual(main())


def test_a_flooder_is_cut_off_costs_little_and_may_come_back() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        solve(a)
        assert await ask(b, a, 1) == 2
        lost: list[str] = []
        a.on_lost.append(lambda peer, why: lost.append(why))
        told: list[str] = []
        b.on_lost.append(lambda peer, why: told.append(why))
        decoded = Counter[str]()
        real = wire.decode

        def counted(header: Buffer, payload_bytes: int) -> Frame:
            decoded["frames"] += 1
            return real(header, payload_bytes)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("samovar.protocols.endpoint.decode", counted)
            for _ in range(10_000):
                post.open["a"].frames("b", b"\xc1", b"", 10)
            assert decoded["frames"] == 16
            for _ in range(10):
                await asyncio.sleep(a.interval_s)
                for _ in range(1000):
                    post.open["a"].frames("b", b"\xc1", b"", 10)
            assert decoded["frames"] < 16 + 20
        assert 1 <= len(lost) <= 10
        assert "b" in a.refused
        await asyncio.sleep(2 * a.interval_s)
        with contextlib.suppress(PeerLost):  # when nothing made b speak meanwhile, it learns of it now
            await ask(b, a, 2)
        assert any("gave this link up" in why for why in told)
        b.dial("a", "")
        assert await ask(b, a, 3) == 4
        a.abort()
        b.abort()

    run_virtual(main())


def test_one_key_on_two_machines_is_cut_off_instead_of_flapping_for_ever() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a = await opened(post, "a", 1)
        solve(a)
        twins = [await opened(post, "b", 2), await opened(post, "b", 3)]
        both = [post.open["b"]]

        def to_both(sender: PeerId, header: Buffer, payload: Buffer, size: int) -> None:
            for twin in twins:
                twin._frames(sender, header, payload, size)

        post.open["b"] = dataclasses.replace(both[0], frames=to_both)
        for twin in twins:
            twin.watch({"a"})
        a.watch({"b"})
        await asyncio.sleep(20)
        assert "two machines" in a.refused["b"]
        assert post.frames < 2000
        for endpoint in (a, *twins):
            endpoint.abort()

    run_virtual(main())


def test_a_window_follows_the_rate_of_the_way_and_one_lucky_sample_does_not_flood_it() -> None:
    pace = Pace(patience_s=8.0)
    assert pace.window_bytes == WINDOW_BYTES_START
    pace.measured(WINDOW_BYTES_START / 2, full=False)
    assert pace.bandwidth_Bps is None, "less than could have been says nothing"
    pace.measured(125_000, full=True)
    assert (pace.window_bytes, pace.chunk_bytes) == (2 * WINDOW_BYTES_START, WINDOW_BYTES_START // 2)
    pace.measured(1e9, full=True)
    assert pace.window_bytes == 4 * WINDOW_BYTES_START
    for _ in range(10):
        pace.measured(1e9, full=True)
    assert (pace.window_bytes, pace.chunk_bytes) == (WINDOW_BYTES_MAX, 1 << 20)
    for _ in range(60):
        pace.measured(1.0, full=True)
    assert (pace.window_bytes, pace.chunk_bytes) == (WINDOW_BYTES_MIN, CHUNK_BYTES_MIN)
    pace.broke()
    assert pace.window_bytes == WINDOW_BYTES_MIN
    before = pace.window_bytes
    pace.measured(0.5, full=False)
    assert pace.window_bytes == before


def test_a_listener_or_handler_that_fails_stops_nobody_else() -> None:
    async def main() -> None:
        faults: list[dict] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        lost: list[PeerId] = []
        a.on_lost.append(lambda peer, why: 1 / 0)
        a.on_lost.append(lambda peer, why: lost.append(peer))
        b.on(Parcel, lambda envelope: 1 / 0)
        for n in range(100):
            await a.send("b", Parcel(n), bytes(200_000))  # more than the credit: a failed handler does not keep it
        solve(b)
        assert await ask(a, b, 1) == 2
        await a.drain()
        assert len(faults) == 100
        a.watch({"b"})
        b.abort()
        await eventually(lambda: lost == ["b"])
        assert len(faults) == 101
        a.abort()

    run_virtual(main())


def test_a_late_tick_forgives_all_and_counts_nobody_as_heard_in_the_future() -> None:
    """A process that stood still for an hour does not think that everybody else did."""

    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        a.watch({"b"})
        b.watch({"a"})
        await asyncio.sleep(5)
        loop = asyncio.get_running_loop()
        loop._now += 3600
        await asyncio.sleep(0)
        assert a.is_lost("b") is None
        await asyncio.sleep(0.5)
        assert a._links.known("b").heard_at <= loop.time()
        b.abort()
        began = loop.time()
        await eventually(lambda: a.is_lost("b") is not None)
        assert loop.time() - began <= a.patience_s + a.interval_s + 0.1
        a.abort()

    run_virtual(main())


def test_what_nobody_takes_is_kept_within_bounds_and_its_sender_named() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        for n in range(70):
            a.post("b", Postcard(n))
        await a.drain()
        assert "nobody here takes" in b.refused["a"]
        taken = collect(b)
        await asyncio.sleep(0)
        assert numbers(taken[Postcard]) == list(range(64))
        b.on(Riddle, lambda envelope: b.post("a", Solution(envelope.message.ask, 5)))
        assert await ask(a, b, 1) == 5
        a.abort()
        b.abort()

    run_virtual(main())
