"""What every endpoint promises of the flow: whoever does not take what is sent holds up nobody else."""

import asyncio

import pytest
from conformance import (
    Parcel,
    Postcard,
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

from samovar.protocols.link.congestion import WINDOW_BYTES_MAX
from samovar.protocols.link.lane import CREDIT_BYTES_MIN, MESSAGE_BYTES_MAX
from samovar.protocols.transport import PeerId

TOO_MUCH = (300, 150_000)
"""Parcels, and bytes of each: more than any credit."""


async def a_way_that_stands_still_holds_up_nobody_else(world: World) -> None:
    a, b, c = await world.three()
    for endpoint in (b, c):
        solve(endpoint)
    assert await ask(a, b, 1) == 2
    at_b, at_c = collect(b), collect(c)
    world.spare("a", "c")  # the healthy one is, so that all this takes less than the patience
    world.ways["a"].clog(b.id)
    sending = asyncio.create_task(ship(a, b, 40, 30_000))
    await eventually(lambda: bool(out_lane(a, b).queue))
    *answers, _ = await asyncio.gather(*(ask(a, c, n) for n in range(20)), ship(a, c, 40, 30_000))
    assert answers == list(range(1, 21))
    await eventually(lambda: len(at_c[Parcel]) == 40)
    assert not sending.done()
    assert at_b[Parcel] == []
    assert world.ways["a"].held_up > 0
    world.ways["a"].unclog(b.id)
    await sending
    await a.drain()
    assert numbers(at_b[Parcel]) == numbers(at_c[Parcel]) == list(range(40))


async def a_receiver_that_never_consumes_holds_up_nobody_else(world: World) -> None:
    a, b, c = await world.three()
    at_b, at_c = collect(b, consume=False), collect(c)
    sending = asyncio.create_task(ship(a, b, *TOO_MUCH))
    await stuck(sending, a, b)
    await ship(a, c, 30, 30_000)
    await eventually(lambda: len(at_c[Parcel]) == 30)
    assert not sending.done()
    for envelope in at_b[Parcel]:
        envelope.done()
    collect(b)
    await sending


async def sending_waits_for_credit_and_what_is_under_way_stays_within_the_window(world: World) -> None:
    a, b, _ = await world.three()
    windows, overshot = [0], []

    def measure(peer: PeerId) -> None:
        lane, window_bytes = out_lane(a, b), link_of(a, b)._pace.window_bytes
        assert window_bytes <= WINDOW_BYTES_MAX
        windows.append(window_bytes)
        if len(lane.in_flight) > 1:
            overshot.append(
                lane.posted_bytes - lane.acked_bytes - max(windows)
            )  # what is under way stays so when the window shrinks

    await over(a).send(b.id, Postcard(0))
    at_b = collect(b, consume=False)
    world.ways["a"].posting = measure
    sending = asyncio.create_task(ship(a, b, 2400, 15_000))
    await stuck(sending, a, b)
    assert len(overshot) > 0
    assert max(overshot) <= 0
    assert sum(len(envelope.payload) for envelope in at_b[Parcel]) >= CREDIT_BYTES_MIN
    taken = 0
    while not sending.done():
        unused = at_b[Parcel][taken:]
        assert sum(len(envelope.payload) for envelope in unused) <= WINDOW_BYTES_MAX + MESSAGE_BYTES_MAX
        for envelope in unused:
            envelope.done()
            envelope.done()  # twice is harmless: it gives no credit twice
        taken += len(unused)
        await asyncio.sleep(0.005)
    await a.drain()
    assert numbers(at_b[Parcel]) == list(range(2400))
    assert max(overshot) <= 0


async def control_messages_overtake_data_that_is_stuck(world: World) -> None:
    a, b, _ = await world.three()
    solve(b)
    at_b = collect(b, consume=False)
    sending = asyncio.create_task(ship(a, b, *TOO_MUCH))
    await stuck(sending, a, b)
    arrived = len(at_b[Parcel])
    for n in range(10):
        assert await ask(a, b, n) == n + 1
        await over(a).send(b.id, Postcard(n))
    await eventually(lambda: len(at_b[Postcard]) == 10)
    assert len(at_b[Parcel]) == arrived
    assert not sending.done()
    sending.cancel()


async def a_cancelled_send_sends_nothing_and_what_follows_is_sent(world: World) -> None:
    a, b, _ = await world.three()
    at_b = collect(b, consume=False)
    sending = asyncio.create_task(ship(a, b, *TOO_MUCH))
    await stuck(sending, a, b)
    arrived = len(at_b[Parcel])
    sending.cancel()
    after = asyncio.create_task(over(a).send(b.id, Parcel(1000), b"after"))
    with pytest.raises(asyncio.CancelledError):
        await sending
    for envelope in list(at_b[Parcel]):
        envelope.done()
    await after
    await a.drain()
    assert numbers(at_b[Parcel]) == [*range(arrived), 1000]
