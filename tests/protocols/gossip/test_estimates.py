"""Estimates have the same bits on both sides, also where some neighbours read shared memory and others do not."""

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b

import pytest
import torch
from test_showing import Peer, ring

from samovar.aggregation.codecs.registry import parse_codec
from samovar.protocols.gossip.algorithms.differences import Differences
from samovar.protocols.gossip.estimates import Estimate, Estimates
from samovar.protocols.gossip.messages import NEWEST, Form, Published
from samovar.protocols.shared_memory.machine import machine

SIZE = 1000
shares_memory = pytest.mark.skipif(not machine(), reason="this machine has no memory to share: not Linux on x86-64")


@asynccontextmanager
async def two_here_one_elsewhere() -> AsyncIterator[list[Peer]]:
    """Three neighbours, the last of which is on another machine."""
    async with ring(3, size=SIZE, differences=Differences(parse_codec("top_k:0.1"))) as peers:
        *here, last = (peer.members for peer in peers)
        last.me = replace(last.me, machine="elsewhere")
        for members in here:
            others = [last.me if one.id == last.me.id else one for one in members.neighbours.now]
            members.neighbours.become(others, lambda member: "")
        yield peers


@shares_memory
async def test_a_neighbour_on_another_machine_gets_differences_although_others_read_shared_memory() -> None:
    chance = torch.Generator().manual_seed(1)
    async with two_here_one_elsewhere() as peers:
        for number in range(1, 6):
            await asyncio.gather(*(peer.round(number, torch.randn(SIZE, generator=chance)) for peer in peers))
            forms = {name: one.difference is not None for name, one in peers[2].taken.vectors.items()}
            assert forms == {"p0": True, "p1": True}
        assert peers[0].neighbours.bytes_shared > 0


@shares_memory
async def test_the_estimate_of_a_newcomer_stays_when_the_board_is_written_to_again() -> None:
    """The newcomer, on another machine, goes on from a vector that lies on its neighbour's board."""
    chance = torch.Generator().manual_seed(1)
    async with two_here_one_elsewhere() as (giver, near, newcomer):
        for number in (1, 2, 3):
            together = (giver, near, newcomer)
            await asyncio.gather(*(peer.round(number, torch.randn(SIZE, generator=chance)) for peer in together))
        model = await newcomer.exchange.take("p0", NEWEST, form=Form.WHOLE)
        newcomer.neighbours.begin_anew({"p0": model})
        for number in range(4, 12):
            await giver.neighbours.publish(Published(number, number, torch.randn(SIZE, generator=chance)))
        mine = await newcomer.neighbours.publish(Published(12, 12, torch.randn(SIZE, generator=chance)))
        found = await giver.exchange.take("p2", 12)
        assert found.difference is not None
        assert torch.equal(found.vector, mine.vector)


async def test_neighbours_that_name_an_unknown_vector_have_each_estimate_hashed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vectors are so large that they are hashed in threads."""
    givers, size = [f"p{at}" for at in range(8)], 300_000
    estimates = Estimates(Differences(parse_codec("top_k:0.1")), Published(0, 0, torch.zeros(SIZE)))
    for at, giver in enumerate(givers, 1):
        estimates.took(giver, Published(1, 1, torch.full((size,), float(at))))
    hashed = list[int]()

    def counted(data: memoryview, *, digest_size: int) -> object:
        hashed.append(len(data))
        return blake2b(data, digest_size=digest_size)

    monkeypatch.setattr(f"{Estimate.__module__}.blake2b", counted)
    found = await asyncio.gather(*(estimates.found(giver, None, b"another's") for giver in givers))
    assert found == [None] * len(givers)
    assert len(hashed) == len(givers) + 1


async def test_a_vector_whose_link_ended_while_it_was_decoded_is_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The giver may come back under its key from an older checkpoint: its round of that number is then another."""
    async with ring(2, near=False, size=SIZE, differences=Differences(parse_codec("top_k:0.1"))) as (giver, taker):
        begun, goes_on, decode = asyncio.Event(), asyncio.Event(), taker.exchange.estimates.leads_to

        async def slow(before: torch.Tensor, difference: torch.Tensor) -> torch.Tensor:
            begun.set()
            await goes_on.wait()
            return await decode(before, difference)

        monkeypatch.setattr(taker.exchange.estimates, "leads_to", slow)
        await giver.exchange.publish(Published(1, 1, torch.ones(SIZE)), ["p1"])
        taking = asyncio.create_task(taker.exchange.take("p0", 1))
        async with asyncio.timeout(20):
            await begun.wait()
            for ended in taker.endpoint.on_ended:
                ended("p0")
            goes_on.set()
            assert (await taking).round == 1
        assert taker.exchange.estimates.round_of("p0") is None


async def test_a_vector_for_a_slower_neighbour_is_kept_as_its_difference_alone() -> None:
    chance = torch.Generator().manual_seed(1)
    async with ring(2, near=False, size=SIZE, differences=Differences(parse_codec("top_k:0.1"))) as (giver, taker):
        mine = [
            (
                await giver.exchange.publish(Published(number, number, torch.randn(SIZE, generator=chance)), ["p1"])
            ).vector
            for number in (1, 2, 3)
        ]
        kept = [one for one, _ in giver.exchange.giving._kept._all]
        assert [(one.round, one.vector.numel()) for one in kept] == [(1, 0), (2, 0), (3, SIZE)]
        found = await taker.exchange.take("p0", 1)
        assert found.difference is not None
        assert torch.equal(found.vector, mine[0])
        async with asyncio.timeout(20):
            whole = await taker.exchange.take("p0", 2, form=Form.WHOLE)
        assert (whole.round, whole.difference) == (3, None)
        assert torch.equal(whole.vector, mine[2])


async def test_an_older_vector_is_not_held_while_its_difference_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ring(2, near=False, size=SIZE, differences=Differences(parse_codec("top_k:0.1"))) as (giver, taker):
        begun, goes_on = asyncio.Event(), asyncio.Event()
        send = giver.exchange.giving._vectors.send

        async def slow(peer: str, vector: torch.Tensor, stage: tuple[int, int, int], *, lasts: bool) -> None:
            begun.set()
            await goes_on.wait()
            await send(peer, vector, stage, lasts=lasts)

        monkeypatch.setattr(giver.exchange.giving._vectors, "send", slow)
        monkeypatch.setattr(giver.exchange.giving._vectors, "fitting", lambda peer, values: min(100, values.numel()))
        older = weakref.ref((await giver.exchange.publish(Published(1, 1, torch.ones(SIZE)), ["p1"])).vector)
        taking = asyncio.create_task(taker.exchange.take("p0", 1))
        async with asyncio.timeout(20):
            await begun.wait()
            assert older() is not None
            await giver.exchange.publish(Published(2, 2, torch.zeros(SIZE)), ["p1"])
            assert older() is None
            goes_on.set()
            assert (await taking).round == 1


@pytest.mark.parametrize(("count", "keeps"), [(3, False), (2, True)])
async def test_the_model_with_which_a_peer_began_goes_with_its_first_mix_with_several(count: int, keeps: bool) -> None:
    """After a mix with a single neighbour a newcomer may follow, whose differences lead from that model."""
    chance = torch.Generator().manual_seed(1)
    async with ring(count, near=False, size=SIZE, differences=Differences(parse_codec("top_k:0.1"))) as peers:
        estimates, first = peers[0].exchange.estimates, Estimate(peers[0].exchange.giving.newest.vector)
        assert estimates is not None
        assert await estimates.found("p1", None, first.hash()) is not None
        await asyncio.gather(*(peer.round(1, torch.randn(SIZE, generator=chance)) for peer in peers))
        assert (await estimates.found("p1", None, first.hash()) is not None) == keeps
