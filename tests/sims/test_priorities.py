"""Deliveries by priorities: who is late is drawn, how late is bounded, and lanes keep their order."""

import asyncio
from dataclasses import replace

import pytest
from tiers import soaked

from samovar.protocols.link.lane import Pulse
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.local_sgd.commit import Commit
from samovar.protocols.transport import Arrivals
from samovar.protocols.wire.frames import encode
from samovar.sims.frames import kind_of
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.priorities import Priorities
from samovar.sims.world.ways import Frame

PEERS = ["a", "b", "c", "d"]
WAYS = [(sender, to) for sender in PEERS for to in PEERS if sender != to]
COMMIT = encode(Commit(1, 2, 3), 0, incarnation=1, towards=2**62, seq=5)
PULSE = encode(Pulse(0, 5, 0.5), 0, incarnation=1, towards=2, seq=0)


def drawn(seed: int, changes: int = 0) -> Priorities:
    return Priorities(PEERS, seed, changes=changes, patience_s=4.0)


def test_the_kind_of_a_message_is_read_from_its_header_and_other_bytes_have_none() -> None:
    assert (kind_of(COMMIT), kind_of(PULSE)) == ("Commit", "Pulse")
    assert [kind_of(bad) for bad in (b"", b"x", COMMIT[:4], b"\x93\x01\x02\x03")] == [""] * 4


def test_each_way_has_a_rank_of_its_own_and_none_waits_for_more_than_a_quarter_of_the_patience() -> None:
    orders = set()
    for seed in range(30):
        priorities = drawn(seed)
        extra_s = {way: priorities.extra_s(*way, COMMIT) for way in WAYS}
        assert len(set(extra_s.values())) == len(WAYS)
        assert min(extra_s.values()) == 0.0
        assert max(extra_s.values()) == priorities.bound_s <= 1.0
        orders.add(tuple(sorted(WAYS, key=lambda way: extra_s[way])))
    assert len(orders) == 30
    assert {drawn(seed).bound_s for seed in range(30)} == {4.0 / 64, 4.0 / 16, 1.0}


def test_heartbeats_wait_for_nothing() -> None:
    assert {drawn(seed).extra_s(*way, PULSE) for seed in range(5) for way in WAYS} == {0.0}


def test_at_a_change_the_way_that_is_used_falls_to_the_lowest_priority() -> None:
    fallen = []
    for seed in range(20):
        priorities, same = drawn(seed, changes=3), drawn(seed)
        for _ in range(3000):
            priorities.extra_s("a", "b", COMMIT)
        assert [priorities.extra_s(*way, COMMIT) for way in WAYS[1:]] == [
            same.extra_s(*way, COMMIT) for way in WAYS[1:]
        ]
        fallen.append(priorities.extra_s("a", "b", COMMIT) == priorities.bound_s)
    assert all(fallen)


def test_a_way_keeps_its_order_and_two_ways_do_not() -> None:
    """A message that b sends first arrives last at c, for some seed; the messages of a never overtake each other."""

    async def main(seed: int) -> list[tuple[str, int]]:
        network, arrived = Network(LinkSpec(bandwidth_Bps=1e9, latency_s=0.01), 1), list[tuple[str, int]]()
        network.priorities = drawn(seed, changes=2)

        def see(frame: Frame, sent: bool) -> None:
            if not sent:
                arrived.append((frame.sender, frame.payload[0]))

        network.seen.append(see)
        for peer in PEERS:
            network.open(peer, Arrivals(lambda *_: None, lambda _: None, lambda *_: None))
        network.doors.admit("c", "a")
        network.doors.admit("c", "b")
        for number in range(20):
            for sender in "ba":
                network.carry(sender, "c", PULSE if number % 3 else COMMIT, bytes([number]))
            await asyncio.sleep(0.001)
        await asyncio.sleep(2.0)
        return arrived

    seen = [run_virtual(main(seed)) for seed in range(10)]
    for arrived in seen:
        for sender in "ab":
            assert [number for one, number in arrived if one == sender] == list(range(20))
    assert {arrived[0][0] for arrived in seen} == {"a", "b"}


@pytest.mark.parametrize("priorities", [0, soaked(3)])
def test_a_run_by_priorities_is_a_function_of_its_scenario(priorities: int) -> None:
    scenario = replace(draw(12), faults=(), buggify=False, priorities=priorities)
    one, other = judge(scenario), judge(scenario)
    assert one.broken is None
    assert one.digest == other.digest != judge(replace(scenario, priorities=None)).digest
