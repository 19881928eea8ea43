"""Conversations that share an endpoint, each through a channel of its own."""

import asyncio
import random
from functools import partial

import pytest
from conformance import Parcel, Postcard, Riddle, Solution, eventually
from post import Post, opened
from simulated import no_complaints, simulate  # noqa: F401

from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.link.dispatch import Unanswered
from samovar.protocols.link.lane import MESSAGE_COST_BYTES
from samovar.protocols.link.link import PeerLost
from samovar.protocols.wire.frames import CHANNEL_LETTERS_MAX, PAYLOAD_BYTES_MAX, PeerMisbehaved


def between_two(scene) -> None:
    """`scene` gets two open endpoints that know each other."""

    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await opened(post, "a", 1), await opened(post, "b", 2)
        try:
            await scene(a, b)
        finally:
            a.abort()
            b.abort()

    simulate(main())


def test_two_conversations_hear_only_their_own_messages() -> None:
    async def scene(a, b) -> None:
        heard = {name: list[int]() for name in ("inner", "outer")}
        for name, numbers in heard.items():
            Channel(b, name).on(Postcard, lambda envelope, numbers=numbers: numbers.append(envelope.message.n))
        for n in range(10):
            Channel(a, "outer" if n % 3 else "inner").post("b", Postcard(n))
        await a.drain()
        assert heard == {"inner": [0, 3, 6, 9], "outer": [1, 2, 4, 5, 7, 8]}

    between_two(scene)


def solve(channel: Channel, more: int, envelope: Envelope) -> None:
    channel.post(envelope.sender, Solution(envelope.message.ask, envelope.message.n + more))


def test_a_question_on_one_channel_is_answered_on_it() -> None:
    async def scene(a, b) -> None:
        for name, more in (("inner", 1), ("outer", 100)):
            Channel(b, name).on(Riddle, partial(solve, Channel(b, name), more))
        answers = [
            await Channel(a, name).ask("b", lambda ask: Riddle(ask, 7), answers=(Solution,))
            for name in ("inner", "outer")
        ]
        assert [(answer.channel, answer.message.n) for answer in answers] == [("inner", 8), ("outer", 107)]

    between_two(scene)


@pytest.mark.parametrize("put_off", [True, False])
def test_the_sender_of_messages_that_are_refused_only_later_is_cut_off(*, put_off: bool) -> None:
    """Either the handler puts the messages off, or they are kept because there is no handler yet."""

    async def scene(a, b) -> None:
        channel, waiting = Channel(b, "test"), list[Envelope]()
        asked = [
            asyncio.create_task(Channel(a, "test").ask("b", lambda ask: Riddle(ask, 7), answers=(Solution,)))
            for _ in range(16)
        ]

        def refuse(envelope: Envelope) -> None:
            raise PeerMisbehaved("asked a riddle")

        if put_off:
            channel.on(Riddle, waiting.append)
            await eventually(lambda: len(waiting) == 16)
        else:
            await eventually(lambda: [len(kept) for kept in b.reception._unclaimed.values()] == [16])
            channel.on(Riddle, refuse)
        for envelope in waiting:
            channel.resume(envelope, refuse)
        for task in asked:
            with pytest.raises(PeerLost):
                await task
        assert b.refused == {"a": "asked a riddle"}
        assert b._trust.cut_off("a")

    between_two(scene)


def test_a_kind_has_one_handler_on_a_channel_until_that_is_closed() -> None:
    async def scene(a, b) -> None:
        channel = Channel(a, "inner")
        channel.on(Postcard, print)
        with pytest.raises(ValueError, match="Postcard has a handler on the channel 'inner'"):
            Channel(a, "inner").on(Postcard, print)
        heard = list[int]()
        channel.close()
        Channel(b, "inner").post("a", Postcard(1))
        await b.drain()
        Channel(a, "inner").on(Postcard, lambda envelope: heard.append(envelope.message.n))
        Channel(b, "inner").post("a", Postcard(2))
        await b.drain()
        assert heard == [1, 2], "what came between the two waited"

    between_two(scene)


def test_a_sender_to_a_closed_conversation_is_not_cut_off() -> None:
    """It cannot know."""

    async def scene(a, b) -> None:
        inner, heard = Channel(a, "inner"), list[int]()
        inner.on(Postcard, print)
        Channel(a, "outer").on(Postcard, lambda envelope: heard.append(envelope.message.n))
        inner.close()
        for n in range(200):
            Channel(b, "inner").post("a", Postcard(n))
        for n in range(40):
            await Channel(b, "inner").send("a", Parcel(n), bytes(50_000))
        Channel(b, "outer").post("a", Postcard(7))
        await b.drain()
        assert heard == [7]
        assert not a.refused
        Channel(b, "third").post("a", Postcard(8))
        await b.drain()
        Channel(a, "third").on(Postcard, lambda envelope: heard.append(envelope.message.n))
        await eventually(lambda: heard == [7, 8])

    between_two(scene)


@pytest.mark.parametrize("when", ["before it is closed", "after it was closed"])
def test_a_question_to_a_conversation_that_was_closed_is_answered_with_the_reason(when: str) -> None:
    async def scene(a, b) -> None:
        inner = Channel(b, "inner")
        inner.on(Postcard, print)
        if when == "after it was closed":
            inner.close()
        asked = Channel(a, "inner").ask("b", lambda ask: Riddle(ask, 7), answers=(Solution,))
        question = asyncio.create_task(asked)
        await asyncio.sleep(1)
        inner.close()
        with pytest.raises(PeerLost, match="it cannot answer: the conversation is over here"):
            await asyncio.wait_for(question, 1)
        Channel(b, "inner").on(Riddle, partial(solve, Channel(b, "inner"), 1))
        answer = await Channel(a, "inner").ask("b", lambda ask: Riddle(ask, 7), answers=(Solution,))
        assert answer.message.n == 8

    between_two(scene)


def test_a_refusal_that_fits_no_question_is_dropped_and_answered_by_nothing() -> None:
    async def scene(a, b) -> None:
        Channel(a, "inner").close()
        for n in range(100):
            Channel(b, "inner").post("a", Unanswered(n + 1, "made up"))
        await b.drain()
        assert not a.reception._unclaimed
        assert a.links.outbox.bytes_sent_by["inner"] == 0

    between_two(scene)


def test_a_question_is_answered_on_its_own_channel_only() -> None:
    """Else anybody could have bytes counted for names that it makes up."""

    async def scene(a, b) -> None:
        def solve_elsewhere(envelope: Envelope) -> None:
            solve(Channel(b, "made up"), 1, envelope)
            solve(Channel(b, "inner"), 2, envelope)

        Channel(b, "inner").on(Riddle, solve_elsewhere)
        answer = await Channel(a, "inner").ask("b", lambda ask: Riddle(ask, 7), answers=(Solution,))
        assert (answer.channel, answer.message.n) == ("inner", 9)
        assert {*a.reception.bytes_received_by} == {"inner"}

    between_two(scene)


def test_one_conversation_watches_on_though_another_watches_others_or_nobody() -> None:
    async def scene(a, b) -> None:
        lost = list[str]()
        a.on_lost.append(lambda peer, why: lost.append(peer))
        inner, outer = Channel(a, "inner"), Channel(a, "outer")
        inner.watch({"b"})
        outer.watch({"c"})
        assert a.links.watched == {"b", "c"}
        outer.close()
        assert a.links.watched == {"b"}
        b.abort()
        await eventually(lambda: bool(lost))
        assert lost == ["b"]

    between_two(scene)


def test_bytes_are_counted_for_each_channel_without_retransmissions() -> None:
    async def scene(a, b) -> None:
        inner, outer = Channel(a, "inner"), Channel(a, "outer")
        costs = list[int]()

        def hear(envelope) -> None:
            costs.append(envelope.cost)
            envelope.done()

        for channel in (Channel(b, "inner"), Channel(b, "outer")):
            channel.on(Parcel, hear)
        post = a._transport._post
        post.lossy = True
        for n in range(40):
            await inner.send("b", Parcel(n), bytes(5000))
        await outer.send("b", Parcel(0), bytes(PAYLOAD_BYTES_MAX))
        await a.drain()
        post.lossy = False
        assert sum(link.retransmitted for link in a.links) > 0
        assert inner.bytes_sent == Channel(b, "inner").bytes_received == sum(costs[:-1]) - 40 * MESSAGE_COST_BYTES
        assert PAYLOAD_BYTES_MAX < outer.bytes_sent == Channel(b, "outer").bytes_received < PAYLOAD_BYTES_MAX + 100
        assert a.links.outbox.bytes_sent > inner.bytes_sent + outer.bytes_sent

    between_two(scene)


def test_channels_that_no_peer_opens_leave_nothing_behind() -> None:
    """Anybody may make up names."""

    async def scene(a, b) -> None:
        for n in range(50):
            Channel(b, f"made up {n}").post("a", Postcard(n))
        await b.drain()
        assert len(a.reception._unclaimed) == 50
        a.gone("b", "it has ended")
        assert len(a.reception._unclaimed) == 0
        assert len(a.reception.bytes_received_by) == 0

    between_two(scene)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (CHANNEL_LETTERS_MAX + 1)])
def test_a_channel_has_a_name_that_the_wire_takes(name: str) -> None:
    async def scene(a, b) -> None:
        with pytest.raises(ValueError, match="a channel's name"):
            Channel(a, name)

    between_two(scene)
