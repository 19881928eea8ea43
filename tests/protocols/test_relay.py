"""Peers that cannot be dialled: answers on their own connections, and streams that a relay carries, over sockets."""

from collections.abc import AsyncIterator

import pytest
from conformance import Parcel, ask, collect, numbers, over, solve
from town import Town

from samovar.protocols.addresses import NOWHERE
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.relay.ends import Ends
from samovar.protocols.relay.messages import RELAY
from samovar.protocols.relay.relay import Relay

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town() as town:
        yield town


async def acquainted(*endpoints: Endpoint) -> None:
    for one in endpoints:
        for other in endpoints:
            if one is not other:
                one.dial(other.id, other.address)


async def test_first(town: Town) -> None:
    r = await town.endpoint(patience_s=4)
    a, b = await town.endpoint(listen=NOWHERE, patience_s=4), await town.endpoint(listen=NOWHERE, patience_s=4)
    relay = Relay(Channel(r, RELAY), lambda: {a.id, b.id})
    for one in (a, b):
        Ends(Channel(one, RELAY), one.pipes, lambda far: [r.id])
    await acquainted(a, b, r)
    for one in (a, b, r):
        solve(one)
    assert await ask(r, a, 1) == 2
    assert await ask(a, r, 1) == 2
    assert await ask(a, b, 1) == 2
    assert await ask(b, a, 1) == 2
    at_b = collect(b)
    for n in range(200):
        await over(a).send(b.id, Parcel(n), bytes(100_000))
    await a.drain()
    assert numbers(at_b[Parcel]) == list(range(200))
    print(relay.carried_bytes)
    assert 0
