"""Peers that cannot be dialled: answers on their own connections, and streams that a relay carries."""

import pytest
from conformance import World
from promises_of_relays import PROMISES_OF_RELAYS
from worlds import CurveRelays, InsecureRelays, SimulatedRelays

pytestmark = pytest.mark.timeout(90)


@pytest.mark.parametrize("promise", PROMISES_OF_RELAYS, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("world", [SimulatedRelays, CurveRelays, InsecureRelays])
def test_relays_keep_their_promises(world: type[World], promise) -> None:
    world(lossy=False).try_promise(promise, long=False)
