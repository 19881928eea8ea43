"""How often a donor is read, by how many keys it may be."""

import asyncio

import pytest

from samovar.protocols.transfer.readings import _AT_ONCE, _READERS_MAX, _READINGS, Readings
from samovar.protocols.wire.frames import PeerMisbehaved
from samovar.sims.world.loop import run_virtual

INTERVAL_S = 0.5


def read_of(readings: Readings, peer: str) -> int:
    """How many states it can read now."""
    for count in range(_AT_ONCE + 1):
        try:
            readings.read(peer, 1.0)
        except PeerMisbehaved:
            return count
    raise AssertionError("without end")


def test_a_peer_reads_so_many_states_at_once_and_so_many_an_interval() -> None:
    async def main() -> None:
        readings = Readings(INTERVAL_S)
        assert read_of(readings, "a") == _AT_ONCE
        assert read_of(readings, "b") == _AT_ONCE
        await asyncio.sleep(INTERVAL_S)
        assert read_of(readings, "a") == _READINGS
        await asyncio.sleep(100)
        assert read_of(readings, "a") == _AT_ONCE

    run_virtual(main())


@pytest.mark.parametrize("keys", [_READERS_MAX + 1, 2 * _READERS_MAX])
def test_keys_beyond_the_limit_read_no_more_than_the_limit_allows(keys: int) -> None:
    async def main() -> None:
        readings, names = Readings(INTERVAL_S), [f"key {n}" for n in range(keys)]
        assert sum(read_of(readings, name) for name in names) == _AT_ONCE * _READERS_MAX
        assert sum(read_of(readings, name) for name in names) == 0
        await asyncio.sleep(INTERVAL_S)
        assert sum(read_of(readings, name) for name in names) == _READINGS * _READERS_MAX
        await asyncio.sleep(100)
        assert read_of(readings, "an honest newcomer") == _AT_ONCE

    run_virtual(main())
