"""What every endpoint promises, over whatever transport: a suite of functions, each of which is given a world."""

import asyncio
import random

import pytest
from conformance import (
    Parcel,
    Postcard,
    Riddle,
    Solution,
    Whisper,
    World,
    ask,
    collect,
    eventually,
    link_of,
    numbers,
    out_lane,
    over,
    ship,
    solve,
    stuck,
)
from promises_of_flow import (
    TOO_MUCH,
    a_cancelled_send_sends_nothing_and_what_follows_is_sent,
    a_receiver_that_never_consumes_holds_up_nobody_else,
    a_way_that_stands_still_holds_up_nobody_else,
    control_messages_overtake_data_that_is_stuck,
    sending_waits_for_credit_and_what_is_under_way_stays_within_the_window,
)

from samovar.protocols.channel import Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.link import PeerLost
from samovar.protocols.wire.frames import PAYLOAD_BYTES_MAX, Lane


async def messages_arrive_exactly_once_and_in_order_on_each_lane(world: World) -> None:
    a, b, _ = await world.three()
    rng = random.Random(7)
    sizes = [rng.choice([0, 1, 999, 20_000, 70_000]) for _ in range(150)]
    payloads = [rng.randbytes(size) for size in sizes]

    async def parcels(here: Endpoint, there: Endpoint) -> None:
        for n, payload in enumerate(payloads):
            await over(here).send(there.id, Parcel(n), payload)

    async def postcards(here: Endpoint, there: Endpoint) -> None:
        for n in range(150):
            await over(here).send(there.id, Postcard(n))

    at_a, at_b = collect(a), collect(b)
    await asyncio.gather(parcels(a, b), postcards(a, b), parcels(b, a), postcards(b, a))
    await asyncio.gather(a.drain(), b.drain())
    for arrived in (at_a, at_b):
        assert numbers(arrived[Parcel]) == numbers(arrived[Postcard]) == list(range(150))
        assert [bytes(envelope.payload) for envelope in arrived[Parcel]] == payloads
    if world.lossy:
        assert link_of(a, b).retransmitted > 0
    else:
        assert link_of(a, b).retransmitted == 0


async def a_silent_peer_is_lost_in_time_and_all_who_wait_for_it_are_told(world: World) -> None:
    a, b, c = await world.three()
    for endpoint in (b, c):
        solve(endpoint)
    await asyncio.gather(ask(a, b, 1), ask(a, c, 1))
    over(a).watch({b.id, c.id})
    over(c).watch({a.id})
    over(b).close()
    collect(b, consume=False)
    over(b).on(Riddle, lambda envelope: None)
    over(b).watch({a.id})
    sending = asyncio.create_task(ship(a, b, *TOO_MUCH))
    asking = asyncio.create_task(ask(a, b, 2))
    await stuck(sending, a, b)
    loop = asyncio.get_running_loop()
    world.ways["b"].silent = True
    await eventually(lambda: b.id in world.lost["a"])
    if world.virtual:
        silent_s = loop.time() - link_of(a, b).heard_at
        assert world.patience_s <= silent_s <= world.patience_s + a.interval_s + 0.005
    for waiting in (sending, asking):
        with pytest.raises(PeerLost, match="not heard of") as told:
            await waiting
        assert told.value.peer == b.id
    with pytest.raises(PeerLost):
        await over(a).send(b.id, Postcard(3))
    over(a).post(b.id, Postcard(4))
    assert "not heard of" in (a.is_lost(b.id) or "")
    assert world.lost["a"] == [b.id]
    assert await ask(a, c, 5) == 6


async def peers_that_lost_each_other_meet_again_when_one_is_dialled(world: World) -> None:
    a, b, _ = await world.three()
    solve(a)
    solve(b)
    await asyncio.gather(ask(a, b, 1), ask(b, a, 1))
    over(a).watch({b.id})
    over(b).watch({a.id})
    world.ways["b"].silent = True
    await eventually(lambda: world.lost["a"].count(b.id) == world.lost["b"].count(a.id) == 1)
    world.ways["b"].silent = False
    with pytest.raises(PeerLost):
        await ask(a, b, 2)
    a.dial(b.id, b.address)
    assert await ask(a, b, 3) == 4
    assert await ask(b, a, 4) == 5


async def a_restarted_peer_never_gets_what_was_meant_for_its_past_self(world: World) -> None:
    a, b, _ = await world.three()
    solve(a)
    at_b = collect(b)
    await over(a).send(b.id, Parcel(1))
    await a.drain()
    assert numbers(at_b[Parcel]) == [1]
    world.ways["a"].clog(b.id)
    sending = asyncio.create_task(ship(a, b, 40, 30_000))
    over(a).post(b.id, Postcard(2))
    await eventually(lambda: bool(out_lane(a, b).queue))
    b.abort()
    world.endpoints.remove(b)
    again = await world.endpoint("b")
    assert again.id == b.id
    at_again = collect(again)
    calling = asyncio.create_task(ask(again, a, 5))
    await eventually(lambda: link_of(a, b).lost is not None or world.ways["a"].held_up > 3)
    world.ways["a"].unclog(b.id)
    with pytest.raises(PeerLost):
        await sending
    assert world.lost["a"] == [b.id]
    assert await calling == 6
    await over(a).send(b.id, Parcel(77))
    await over(a).send(b.id, Postcard(78))
    await a.drain()
    assert numbers(at_again[Parcel]) == [77]
    assert numbers(at_again[Postcard]) == [78]
    assert numbers(at_b[Parcel]) == [1]


async def closing_first_delivers_everything(world: World) -> None:
    world.patience_s = 12.0  # within which all is delivered, and a busy machine takes its time
    a, b, c = await world.three()
    at_b, at_c = collect(b), collect(c)
    for n in range(60):
        await over(a).send(b.id, Parcel(n), bytes(10_000))
        over(a).post(b.id, Postcard(n))
        over(a).post(c.id, Postcard(n))
    await a.close()
    assert numbers(at_b[Parcel]) == numbers(at_b[Postcard]) == numbers(at_c[Postcard]) == list(range(60))
    with pytest.raises(PeerLost, match="closed"):
        await over(a).send(b.id, Postcard(60))
    over(a).post(b.id, Postcard(60))
    a.abort()


async def a_question_is_answered_or_its_asker_told(world: World) -> None:
    a, b, c = await world.three()
    waiting: list[Envelope] = []
    over(b).on(Riddle, waiting.append)
    asked = [asyncio.create_task(ask(a, b, n)) for n in range(50)]
    await eventually(lambda: len(waiting) == 50)
    for envelope in reversed(waiting):
        over(b).post(envelope.sender, Solution(envelope.message.ask, envelope.message.n + 1))
        over(b).post(envelope.sender, Solution(envelope.message.ask, 0))  # twice: nobody waits for it
        over(c).post(a.id, Solution(envelope.message.ask, 0))  # by somebody who was not asked
    assert await asyncio.gather(*asked) == list(range(1, 51))
    late = asyncio.create_task(ask(a, b, 50))
    await eventually(lambda: len(waiting) == 51)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    over(b).post(a.id, Solution(waiting[-1].message.ask, 51))
    pending = asyncio.create_task(ask(a, b, 51))
    await eventually(lambda: len(waiting) == 52)
    world.ways["b"].silent = True
    nobody = world.transport("nobody").id
    a.dial(nobody, "tcp://127.0.0.1:9")
    to_nobody = over(a).ask(nobody, lambda number: Riddle(number, 1), answers=(Solution,))
    for unanswered in asyncio.as_completed([pending, to_nobody]):
        with pytest.raises(PeerLost):
            await unanswered
    closing = asyncio.create_task(ask(a, c, 1))
    await eventually(lambda: not out_lane(a, c, Lane.CONTROL).queue)
    a.abort()
    with pytest.raises(PeerLost, match="closed"):
        await closing


async def a_link_that_nobody_watches_is_silent_when_idle(world: World) -> None:
    a, b, c = await world.three()
    solve(b)
    at_b = collect(b)
    assert await ask(a, b, 1) == 2
    await ship(a, b, 10, 50_000)
    await a.drain()
    await b.drain()
    assert len(at_b[Parcel]) == 10
    over(a).watch({c.id})
    beats = world.ways["a"].posted

    async def said_in_four_heartbeats() -> int:
        before, said = beats[c.id], beats[b.id] + world.ways["b"].posted[a.id]
        await eventually(lambda: beats[c.id] >= before + 4)
        return beats[b.id] + world.ways["b"].posted[a.id] - said

    for _ in range(5):  # what was owed is said first, and again where it was lost on the way
        if not (said := await said_in_four_heartbeats()):
            break
    assert said == 0
    assert await ask(a, b, 2) == 3


async def a_message_that_comes_before_its_handler_waits_for_it(world: World) -> None:
    a, b, _ = await world.three()
    for n in range(20):
        await over(a).send(b.id, Parcel(n), b"early")
    await a.drain()
    at_b = collect(b)
    await over(a).send(b.id, Parcel(20), b"late")
    await a.drain()
    await eventually(lambda: len(at_b[Parcel]) == 21)
    assert numbers(at_b[Parcel]) == list(range(21))


async def a_message_that_no_receiver_would_take_is_refused_at_its_sender(world: World) -> None:
    a, b, _ = await world.three()
    solve(b)
    with pytest.raises(ValueError, match="bytes"):
        await over(a).send(b.id, Parcel(1), bytes(PAYLOAD_BYTES_MAX + 1))
    with pytest.raises(ValueError, match=r"Postcard\.n"):
        over(a).post(b.id, Postcard(-1))
    with pytest.raises(ValueError, match="control"):
        over(a).post(b.id, Parcel(1))
    assert await ask(a, b, 1) == 2
    await over(a).send(b.id, Parcel(1), bytes(PAYLOAD_BYTES_MAX))
    await a.drain()


async def a_loose_message_is_one_frame_without_a_link_and_is_never_sent_again(world: World) -> None:
    a, b, _ = await world.three()
    heard = list[int]()
    over(b).on(Whisper, lambda envelope: heard.append(envelope.message.n))
    while not heard:  # until there is a way, a loose message may be lost in any world
        over(a).tell(b.id, Whisper(1000))
        await asyncio.sleep(0.01)
    first = world.ways["a"].posted[b.id]
    for n in range(100):
        over(a).tell(b.id, Whisper(n))
    if world.lossy:
        await eventually(lambda: len({*heard} - {1000}) > 80)
    else:
        await eventually(lambda: heard[-1] == 99)
        assert [n for n in heard if n < 100] == [*range(100)]
    assert a.links.get(b.id) is None
    assert b.links.get(a.id) is None
    assert world.ways["a"].posted[b.id] == first + 100
    assert over(a).bytes_sent > 0
    await over(a).send(b.id, Postcard(1))
    await a.drain()
    assert len({*heard} - {1000}) >= 80
    with pytest.raises(ValueError, match="for certain"):
        over(a).tell(b.id, Postcard(1))
    with pytest.raises(ValueError, match="control"):
        over(a).post(b.id, Whisper(1))


PROMISES = [
    messages_arrive_exactly_once_and_in_order_on_each_lane,
    a_way_that_stands_still_holds_up_nobody_else,
    a_receiver_that_never_consumes_holds_up_nobody_else,
    sending_waits_for_credit_and_what_is_under_way_stays_within_the_window,
    control_messages_overtake_data_that_is_stuck,
    a_silent_peer_is_lost_in_time_and_all_who_wait_for_it_are_told,
    peers_that_lost_each_other_meet_again_when_one_is_dialled,
    a_restarted_peer_never_gets_what_was_meant_for_its_past_self,
    closing_first_delivers_everything,
    a_question_is_answered_or_its_asker_told,
    a_link_that_nobody_watches_is_silent_when_idle,
    a_cancelled_send_sends_nothing_and_what_follows_is_sent,
    a_message_that_comes_before_its_handler_waits_for_it,
    a_message_that_no_receiver_would_take_is_refused_at_its_sender,
    a_loose_message_is_one_frame_without_a_link_and_is_never_sent_again,
]


TOO_SHORT_FOR_FAULTS = {
    a_message_that_no_receiver_would_take_is_refused_at_its_sender,
    a_message_that_comes_before_its_handler_waits_for_it,
}
