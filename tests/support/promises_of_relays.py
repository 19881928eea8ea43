"""What is promised of peers that cannot be dialled and of relays, over whatever transport knows such peers.

In these worlds the peers a and b cannot be dialled; c can be, and is no relay; r and s are relays.
"""

import asyncio
from dataclasses import dataclass, field

from conformance import Parcel, World, ask, collect, eventually, numbers, over, ship, solve

from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.relay.messages import RELAY, WINDOW_BYTES, Called, Carry, Over, Piece
from samovar.protocols.relay.relay import STREAMS_OF_ONE_MAX, Relay


async def pair(world: World) -> tuple[Endpoint, Endpoint]:
    """Two peers that cannot be dialled, and answer riddles."""
    a, b = await world.endpoint("a"), await world.endpoint("b")
    solve(a)
    solve(b)
    return a, b


def carriers(world: World) -> list[str]:
    """The relays that have carried anything, the busiest first."""
    busy = [name for name, relay in world.carriers.items() if relay.carried_bytes]
    return sorted(busy, key=lambda name: -world.carriers[name].carried_bytes)


async def a_peer_that_cannot_be_dialled_is_answered_on_its_own_call_before_it_has_said_anything(world: World) -> None:
    a, c = await world.endpoint("a"), await world.endpoint("c")
    solve(a)
    assert a.address == "none"
    assert await ask(c, a, 1) == 2
    assert c.trouble(a.id) is None
    assert carriers(world) == []


async def a_peer_that_cannot_be_dialled_calls_again_where_its_connection_was_lost(world: World) -> None:
    a, c = await world.endpoint("a"), await world.endpoint("c")
    solve(a)
    assert await ask(c, a, 1) == 2
    c.abort()
    world.endpoints.remove(c)
    again = await world.endpoint("c")
    assert again.id == c.id
    assert await ask(again, a, 2) == 3


async def two_that_cannot_be_dialled_talk_through_a_relay_and_all_of_it_comes(world: World) -> None:
    a, b = await pair(world)
    at_b = collect(b)
    await ship(a, b, 40, 30_000)
    assert await ask(b, a, 1) == 2
    await a.drain()
    assert numbers(at_b[Parcel]) == list(range(40))
    assert sum(relay.carried_bytes for relay in world.carriers.values()) > 40 * 30_000


async def a_relay_that_falls_silent_is_replaced_before_the_two_lose_each_other(world: World) -> None:
    a, b = await pair(world)
    over(a).watch({b.id})
    over(b).watch({a.id})
    assert await ask(a, b, 1) == 2
    first, *others = carriers(world)
    assert others == []
    world.ways[first].silent = True
    assert await ask(a, b, 2) == 3
    assert await ask(b, a, 3) == 4
    assert set(carriers(world)) == {"r", "s"}
    assert b.id not in world.lost["a"]
    assert a.id not in world.lost["b"]
    await eventually(lambda: world.ways[first].id in {*world.lost["a"], *world.lost["b"]})


async def a_relay_that_ends_is_replaced_and_takes_nothing_along(world: World) -> None:
    a, b = await pair(world)
    at_b = collect(b)
    sending = asyncio.create_task(ship(a, b, 60, 30_000))
    await eventually(lambda: len(at_b[Parcel]) > 5)
    first, *_ = carriers(world)
    carried = next(endpoint for endpoint in world.endpoints if endpoint.id == world.ways[first].id)
    carried.abort()
    assert not sending.done()
    await sending
    await a.drain()
    assert numbers(at_b[Parcel]) == list(range(60))
    assert set(carriers(world)) == {"r", "s"}


@dataclass
class Heard:
    """What a relay says to somebody who asks it to carry."""

    over: list[Over] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)

    def by(self, endpoint: Endpoint) -> "Heard":
        channel = Channel(endpoint, RELAY)
        channel.on(Over, lambda envelope: self.over.append(envelope.message))
        channel.on(Called, lambda envelope: self.called.append(envelope.message))
        return self


async def a_stranger_to_the_view_gets_nothing_carried(world: World) -> None:
    a, b = await pair(world)
    c = await world.endpoint("c")
    heard, r = Heard().by(c), world.ways["r"].id
    channel = Channel(c, RELAY)
    channel.post(r, Carry(2, b.id))
    await channel.send(r, Piece(2), b"to b")
    await eventually(lambda: len(heard.over) == 2)
    assert "cannot be dialled" in heard.over[0].why
    assert "no such stream" in heard.over[1].why
    assert carriers(world) == []
    assert await ask(a, b, 1) == 2
    assert carriers(world) != []


async def no_more_than_its_streams_and_its_window_are_carried_of_one_peer(world: World) -> None:
    world.outbound = ("a", "b", "c")
    c = await world.endpoint("c")
    c.reception.off(RELAY)
    b = await world.endpoint("b")
    b.reception.off(RELAY)
    heard, at_b, r = Heard().by(c), Heard().by(b), world.ways["r"].id
    channel, relay = Channel(c, RELAY), next(endpoint for endpoint in world.endpoints if endpoint.id == r)
    solve(relay)
    assert await ask(b, relay, 1) == 2  # it is connected
    for number in range(STREAMS_OF_ONE_MAX + 3):
        channel.post(r, Carry(2 * number, b.id))
    await eventually(lambda: len(at_b.called) == STREAMS_OF_ONE_MAX and len(heard.over) == 3)
    assert all(f"{STREAMS_OF_ONE_MAX} streams" in told.why for told in heard.over)
    taken: list[int] = []
    Channel(b, RELAY).on(Piece, lambda envelope: taken.append(len(envelope.payload)))
    for _ in range(WINDOW_BYTES // 10_000 + 5):  # of which b takes note of none
        await channel.send(r, Piece(0), bytes(10_000))
    await eventually(lambda: len(heard.over) > 3)
    assert sum(taken) <= WINDOW_BYTES + 16 * 1024
    assert "more of a stream than its window" in relay.refused[c.id]


async def what_a_relay_carries_keeps_to_its_limit(world: World) -> None:
    a, b = await pair(world)
    for name, relay in world.carriers.items():
        assert isinstance(relay, Relay)
        relay._rate_Bps = 200_000.0 if name in ("r", "s") else None
    at_b, loop = collect(b), asyncio.get_running_loop()
    began = loop.time()
    await ship(a, b, 20, 20_000)
    await a.drain()
    assert len(at_b[Parcel]) == 20
    carried = max(relay.carried_bytes for relay in world.carriers.values())
    assert carried > 400_000
    assert loop.time() - began >= (carried - 100_000) / 200_000 - 0.2


PROMISES_OF_RELAYS = [
    a_peer_that_cannot_be_dialled_is_answered_on_its_own_call_before_it_has_said_anything,
    a_peer_that_cannot_be_dialled_calls_again_where_its_connection_was_lost,
    two_that_cannot_be_dialled_talk_through_a_relay_and_all_of_it_comes,
    a_relay_that_falls_silent_is_replaced_before_the_two_lose_each_other,
    a_relay_that_ends_is_replaced_and_takes_nothing_along,
    a_stranger_to_the_view_gets_nothing_carried,
    no_more_than_its_streams_and_its_window_are_carried_of_one_peer,
    what_a_relay_carries_keeps_to_its_limit,
]
