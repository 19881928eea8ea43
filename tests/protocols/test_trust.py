"""Peers that misbehave, and handlers that fail: they are cut off, named, and cost the others little."""

import asyncio
import contextlib
import dataclasses
import random
from collections import Counter

import pytest
from conformance import Parcel, Postcard, Riddle, Solution, ask, collect, eventually, numbers, over, solve
from post import Post, opened

from samovar.protocols.link.link import PeerLost
from samovar.protocols.transport import PeerId
from samovar.protocols.wire import frames as wire
from samovar.protocols.wire.frames import Buffer, Frame, kind_of, message
from samovar.sims.world.loop import run_virtual


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
        over(a).watch({"b"})
        over(b).watch({"a"})
        with pytest.raises(PeerLost, match=f"version {wire.VERSION + 1}, this side speaks {wire.VERSION}"):
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
            over(twin).watch({"a"})
        over(a).watch({"b"})
        await asyncio.sleep(20)
        assert "two machines" in a.refused["b"]
        assert post.frames < 2000
        for endpoint in (a, *twins):
            endpoint.abort()

    run_virtual(main())


def test_a_failed_listener_or_handler_stops_no_other() -> None:
    async def main() -> None:
        faults: list[dict] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        lost: list[PeerId] = []
        a.on_lost.append(lambda peer, why: 1 / 0)
        a.on_lost.append(lambda peer, why: lost.append(peer))
        over(b).on(Parcel, lambda envelope: 1 / 0)
        for n in range(100):
            await over(a).send(
                "b", Parcel(n), bytes(200_000)
            )  # more than the credit: a failed handler does not keep it
        solve(b)
        assert await ask(a, b, 1) == 2
        await a.drain()
        assert len(faults) == 100
        over(a).watch({"b"})
        b.abort()
        await eventually(lambda: lost == ["b"])
        assert len(faults) == 101
        a.abort()

    run_virtual(main())


def test_a_late_tick_forgives_all_and_counts_no_peer_as_heard_in_the_future() -> None:
    """A process that stood still for an hour does not think that everybody else did."""

    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        over(a).watch({"b"})
        over(b).watch({"a"})
        await asyncio.sleep(5)
        loop = asyncio.get_running_loop()
        loop._now += 3600
        await asyncio.sleep(0)
        assert a.is_lost("b") is None
        await asyncio.sleep(0.5)
        assert a.links.known("b").heard_at <= loop.time()
        b.abort()
        began = loop.time()
        await eventually(lambda: a.is_lost("b") is not None)
        assert loop.time() - began <= a.patience_s + a.interval_s + 0.1
        a.abort()

    run_virtual(main())


def test_keys_that_fill_the_places_for_untaken_messages_leave_one_to_each_other_peer() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        b = await opened(post, "b", 1)
        hostile = [await opened(post, f"hostile {n}", 2 + n) for n in range(4)]
        honest = [await opened(post, f"honest {n}", 10 + n) for n in range(3)]
        for one in hostile:
            for n in range(64):
                over(one).post("b", Postcard(n))
            await one.drain()
        for number, one in enumerate(honest):
            over(one).post("b", Postcard(100 + number))
            await one.drain()
        over(hostile[0]).post("b", Postcard(64))
        await hostile[0].drain()
        assert {*b.refused} <= {one.id for one in hostile}
        taken = collect(b)
        await asyncio.sleep(0)
        assert len(taken[Postcard]) == 256
        assert {100, 101, 102} <= {*numbers(taken[Postcard])}
        for one in (b, *hostile, *honest):
            one.abort()

    run_virtual(main())


def test_a_question_that_gives_its_place_up_is_answered_with_the_reason() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        b = await opened(post, "b", 1)
        others = [await opened(post, f"other {n}", 2 + n) for n in range(5)]
        questions = [asyncio.create_task(ask(one, b, 7)) for one in others[:4] for _ in range(64)]
        await asyncio.sleep(1)
        over(others[4]).post("b", Postcard(1))
        await others[4].drain()
        done, _ = await asyncio.wait(questions, timeout=1)
        (given_up,) = done
        assert "too many messages wait here" in str(given_up.exception())
        for question in questions:
            question.cancel()
        for one in (b, *others):
            one.abort()

    run_virtual(main())


def test_untaken_messages_are_kept_within_bounds_and_their_sender_named() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        for n in range(70):
            over(a).post("b", Postcard(n))
        await a.drain()
        assert "nobody here takes" in b.refused["a"]
        taken = collect(b)
        await asyncio.sleep(0)
        assert numbers(taken[Postcard]) == list(range(64))
        over(b).on(Riddle, lambda envelope: over(b).post("a", Solution(envelope.message.ask, 5)))
        assert await ask(a, b, 1) == 5
        a.abort()
        b.abort()

    run_virtual(main())


@message("of a conversation that is not open")
@dataclasses.dataclass(frozen=True, slots=True)
class Foreign:
    number: int


def test_messages_of_a_conversation_that_is_not_open_here_are_no_misbehaviour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted peer asks about the run, and does not know its protocol yet; the run may still speak to its former
    process in that protocol."""
    name = kind_of(Foreign(0))
    monkeypatch.delitem(wire._by_name, name)
    monkeypatch.setattr(wire, "_families", wire._families - {name.partition(".")[0]})

    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        run, newcomer = await opened(post, "run", 1), await opened(post, "newcomer", 2)
        for n in range(100):
            over(run).post("newcomer", Foreign(n))
        solve(run)
        assert await ask(newcomer, run, 1) == 2
        await run.drain()
        assert newcomer.refused == {}
        assert newcomer.held_bytes == 0
        run.abort()
        newcomer.abort()

    run_virtual(main())
