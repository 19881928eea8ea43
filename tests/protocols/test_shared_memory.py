"""Sums in memory that peers of one machine share: the bits of the sharded schedule, by proof, and without traces."""

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from conformance import eventually, group_of, over
from torch import Tensor

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.protocols.collectives import reducer as reducer_module
from samovar.protocols.collectives.allreduce import allreduce
from samovar.protocols.collectives.reducer import Reducer
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.members.view import Attributes, Member, View
from samovar.protocols.meter import Meter
from samovar.protocols.shared_memory import sums as sums_module
from samovar.protocols.shared_memory.arena import Commons, Offer, Use
from samovar.protocols.shared_memory.machine import machine
from samovar.protocols.shared_memory.segment import Segment
from samovar.protocols.shared_memory.sums import SMALL_BYTES, Sums, bytes_for
from samovar.protocols.transfer.chunks import Inbox

pytestmark = pytest.mark.skipif(not machine(), reason="this machine has no memory to share: not Linux on x86-64")
SIZES = (1, 5, 1000, SMALL_BYTES // 4, SMALL_BYTES // 4 + 1, 300_001)


def vectors_of(world: int, size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 * world + size)
    return [torch.randn(size, generator=generator) for _ in range(world)]


async def endpoints_of(world: int) -> list[Endpoint]:
    hub = LocalHub()
    endpoints = [
        Endpoint(LocalTransport(hub, f"p{rank}"), patience_s=20, rng=random.Random(rank)) for rank in range(world)
    ]
    for endpoint in endpoints:
        await endpoint.open()
        for other in endpoints:
            endpoint.dial(other.id, other.address)
    return endpoints


def view_of(endpoints: Sequence[Endpoint], *, generation: int = 1, on: str | None = None) -> View:
    on = endpoints[0].machine if on is None else on
    members = (Member(e.id, e.id, e.address, Attributes(data_shard=rank), 1, on) for rank, e in enumerate(endpoints))
    return View(generation, tuple(members), True)


async def by_messages(vectors: list[Tensor], schedule: str = "sharded") -> Tensor:
    endpoints = await endpoints_of(len(vectors))
    ids = [endpoint.id for endpoint in endpoints]
    results = await asyncio.gather(
        *(
            allreduce(
                over(endpoint),
                Inbox(over(endpoint)),
                group_of(ids, endpoint),
                SCHEDULES[schedule],
                vector,
                stage_id=(1, 1, 0),
            )
            for endpoint, vector in zip(endpoints, vectors, strict=True)
        )
    )
    for endpoint in endpoints:
        endpoint.abort()
    return results[0]


def sums_of(world: int, size: int) -> list[Sums]:
    """As of several processes: each has mapped the segment for itself."""
    first, fd = Segment.create(bytes_for(size, torch.float32, world))
    segments = [first, *(Segment.attach(os.getpid(), fd, first.secret, first.nbytes) for _ in range(world - 1))]
    os.close(fd)
    members = [f"p{rank}" for rank in range(world)]
    return [Sums(segment, members, rank, size, torch.float32, Meter()) for rank, segment in enumerate(segments)]


@pytest.mark.parametrize("world", [2, 3, 4, 7])
async def test_a_sum_in_place_has_the_bits_of_the_sharded_schedule(world: int) -> None:
    for size in SIZES:
        sums, vectors = sums_of(world, size), vectors_of(world, size)
        want = await by_messages(vectors)
        for turn in range(1, 5):
            results = await asyncio.gather(*(one.run(vector, turn) for one, vector in zip(sums, vectors, strict=True)))
            assert all(torch.equal(result.view(torch.int32), want.view(torch.int32)) for result in results)


async def test_a_vector_that_lives_in_its_slot_is_not_copied(monkeypatch) -> None:
    sums, vectors = sums_of(3, 100_000), vectors_of(3, 100_000)
    for one, vector in zip(sums, vectors, strict=True):
        one.slot(1).copy_(vector)
    monkeypatch.setattr(Tensor, "copy_", lambda *_: pytest.fail("copied"))
    results = await asyncio.gather(*(one.run(one.slot(1), 1) for one in sums))
    assert torch.allclose(results[0], sum(vectors[1:], vectors[0]), atol=1e-5)


async def test_an_interrupted_member_that_comes_back_disturbs_no_sum() -> None:
    """The others have gone on to the next turn when the last one looks at the result of this one."""
    sums, first, second = sums_of(3, 100_000), vectors_of(3, 100_000), vectors_of(3, 100_000)[::-1]
    late = asyncio.create_task(sums[2].run(first[2], 1))
    others = asyncio.gather(sums[0].run(first[0], 1), sums[1].run(first[1], 1))
    want = (await others)[0].clone()
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    next_turn = [asyncio.create_task(sums[rank].run(second[rank], 2)) for rank in (0, 1)]
    await asyncio.sleep(0.05)
    again = (await sums[2].run(first[2], 1)).clone()
    assert torch.equal(again, want)
    results = await asyncio.gather(*next_turn, sums[2].run(second[2], 2))
    assert torch.equal(results[0], await by_messages(second))


async def test_the_last_member_to_bring_its_vector_is_named() -> None:
    sums, vectors = sums_of(3, 1000), vectors_of(3, 1000)
    for one in sums:
        one._meter.begin(computing=False)
    early = asyncio.gather(sums[0].run(vectors[0], 1), sums[2].run(vectors[2], 1))
    while min(sums[rank]._meter._waited_for_s["p1"] for rank in (0, 2)) < 10 * sums_module._NAP_S:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await sums[1].run(vectors[1], 1)
    await early
    assert [one._meter.waited_for for one in sums] == ["p1", None, "p1"]


def test_a_segment_opens_only_with_its_secret() -> None:
    segment, fd = Segment.create(4096)
    with pytest.raises(OSError, match="another secret"):
        Segment.attach(os.getpid(), fd, bytes(32), 4096)
    with pytest.raises(OSError, match="another size"):
        Segment.attach(os.getpid(), fd, segment.secret, 8192)
    with Path("/dev/null").open() as other, pytest.raises(OSError, match="no shared memory of a peer"):
        Segment.attach(os.getpid(), other.fileno(), segment.secret, 4096)
    mine = Segment.attach(os.getpid(), fd, segment.secret, 4096)
    assert not segment.proven(3)
    mine.prove(3)
    assert segment.proven(3)
    assert not segment.proven(2), "each proves for itself"
    os.close(fd)
    with pytest.raises(FileNotFoundError):
        Segment.attach(os.getpid(), fd, segment.secret, 4096)


def test_a_segment_has_no_name_that_could_be_left_behind() -> None:
    before = set(os.listdir("/dev/shm"))
    segment, fd = Segment.create(1 << 20)
    os.close(fd)
    assert set(os.listdir("/dev/shm")) == before
    assert segment.nbytes == 1 << 20


async def reduced(endpoints: list[Endpoint], view: View, vectors: list[Tensor]) -> list[Tensor]:
    return [total for total, _ in await reduced_and_counted(endpoints, view, vectors)]


async def reduced_and_counted(endpoints: list[Endpoint], view: View, vectors: list[Tensor]) -> list[tuple[Tensor, int]]:
    """The sum, and what went through shared memory for it, of each."""
    reducers = [
        Reducer(over(one), lambda group: SCHEDULES["sharded"], lambda one=one: view.group(one.id)) for one in endpoints
    ]
    try:
        totals = await asyncio.gather(
            *(one.sum(vector, (view.generation, 1)) for one, vector in zip(reducers, vectors, strict=True))
        )
        return [(total, one.bytes_shared) for total, one in zip(totals, reducers, strict=True)]
    finally:
        for endpoint in endpoints:
            endpoint.abort()


async def test_members_on_one_machine_find_the_memory_by_themselves(monkeypatch) -> None:
    vectors = vectors_of(4, 50_000)
    want = await by_messages(vectors)
    monkeypatch.setattr(reducer_module, "allreduce", lambda *_, **__: pytest.fail("by messages"))
    endpoints = await endpoints_of(4)
    results = await reduced(endpoints, view_of(endpoints), vectors)
    assert all(torch.equal(result, want) for result in results)


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [
        (1000, 4000 + 3 * 4000),  # written for the others; read of them
        (50_000, 200_000 + 3 * 50_000 + 50_000 + 150_000),  # its vector; their parts; its sum; their sums
    ],
)
async def test_bytes_through_shared_memory_are_counted(size: int, nbytes: int) -> None:
    endpoints = await endpoints_of(4)
    everything = await reduced_and_counted(endpoints, view_of(endpoints), vectors_of(4, size))
    assert [counted for _, counted in everything] == [nbytes] * 4


async def test_bytes_of_messages_are_not_counted_as_shared() -> None:
    endpoints = await endpoints_of(3)
    everything = await reduced_and_counted(endpoints, view_of(endpoints, on=""), vectors_of(3, 50_000))
    assert [counted for _, counted in everything] == [0] * 3


@pytest.mark.parametrize("trouble", ["a liar", "cannot open", "elsewhere"])
async def test_a_sum_without_proof_from_all_goes_by_messages(trouble: str, monkeypatch) -> None:
    vectors = vectors_of(3, 50_000)
    want = await by_messages(vectors, "sharded" if trouble == "elsewhere" else "naive")
    monkeypatch.setattr(Sums, "run", lambda *_: pytest.fail("in place"))
    if trouble == "a liar":
        monkeypatch.setattr(Segment, "prove", lambda self, rank: None)
    elif trouble == "cannot open":
        monkeypatch.setattr(Segment, "attach", classmethod(lambda *_: (_ for _ in ()).throw(OSError("no"))))
    endpoints = await endpoints_of(3)
    view = view_of(endpoints, on="" if trouble == "elsewhere" else None)
    results = await reduced(endpoints, view, vectors)
    assert all(torch.equal(result, want) for result in results)


@pytest.mark.parametrize("first", [0, 2])
async def test_a_late_asker_hears_that_no_memory_can_be_had(first: int, monkeypatch) -> None:
    monkeypatch.setattr(Segment, "create", classmethod(lambda *_: (_ for _ in ()).throw(OSError("no space left"))))
    endpoints = await endpoints_of(3)
    view = view_of(endpoints)
    commons = [Commons(over(endpoint), lambda endpoint=endpoint: view.group(endpoint.id)) for endpoint in endpoints]
    soon = asyncio.create_task(commons[first].segment(1 << 20))
    for _ in range(20):
        await asyncio.sleep(0)
    late = [one.segment(1 << 20) for rank, one in enumerate(commons) if rank != first]
    async with asyncio.timeout(10):
        assert await asyncio.gather(soon, *late) == [None] * 3
    for endpoint in endpoints:
        endpoint.abort()


async def test_each_generation_has_memory_of_its_own() -> None:
    endpoints = await endpoints_of(2)
    views = [view_of(endpoints)]
    commons = [
        Commons(over(endpoint), lambda endpoint=endpoint: views[-1].group(endpoint.id)) for endpoint in endpoints
    ]
    first = await asyncio.gather(*(one.segment(4096) for one in commons))
    assert await commons[0].segment(4096) is first[0]
    views.append(view_of(endpoints, generation=2))
    second = await asyncio.gather(*(one.segment(4096) for one in commons))
    assert first[0] is not None
    assert second[0] is not None
    assert first[0].secret != second[0].secret == (second[1] and second[1].secret)
    for endpoint in endpoints:
        endpoint.abort()


async def test_a_first_member_that_deals_memory_without_end_is_not_followed_without_end() -> None:
    endpoints = await endpoints_of(2)
    view = view_of(endpoints)
    first, other = (
        Commons(over(endpoint), lambda endpoint=endpoint: view.group(endpoint.id)) for endpoint in endpoints
    )
    assert None not in await asyncio.gather(first.segment(4096), other.segment(4096))
    for nbytes in range(1, 1000):
        over(endpoints[0]).post("p1", Use(1, nbytes, True))
        over(endpoints[0]).post("p1", Offer(1, 1000 + nbytes, os.getpid(), 0, bytes(32)))
    async with asyncio.timeout(20):
        assert await asyncio.gather(first.segment(8192), other.segment(8192)) == [None, None]
    assert len(other._deals) == 16
    assert (await asyncio.gather(first.segment(4096), other.segment(4096)))[0] is not None
    for endpoint in endpoints:
        endpoint.abort()


async def test_a_member_that_deals_without_being_the_first_is_refused_by_name_and_cut_off() -> None:
    endpoints = await endpoints_of(3)
    view = view_of(endpoints)
    commons = [Commons(over(endpoint), lambda endpoint=endpoint: view.group(endpoint.id)) for endpoint in endpoints]
    assert None not in await asyncio.gather(*(one.segment(4096) for one in commons))
    for nbytes in range(1, 40):
        over(endpoints[2]).post("p1", Use(1, nbytes, True))
    await eventually(lambda: endpoints[1]._trust.cut_off("p2"))
    assert "dealt in shared memory" in endpoints[1].refused["p2"]
    assert {*commons[1]._deals} == {4096}
    for endpoint in endpoints:
        endpoint.abort()


async def test_more_sizes_than_are_dealt_with_go_by_messages_for_all() -> None:
    endpoints = await endpoints_of(3)
    view = view_of(endpoints)
    commons = [Commons(over(endpoint), lambda endpoint=endpoint: view.group(endpoint.id)) for endpoint in endpoints]
    async with asyncio.timeout(30):
        for nbytes in range(1, 20):
            had = await asyncio.gather(*(one.segment(4096 * nbytes) for one in commons))
            assert [one is not None for one in had] == [nbytes <= 16] * 3
    for endpoint in endpoints:
        endpoint.abort()


async def test_a_word_on_the_next_generation_that_only_the_first_may_say_is_a_fault_of_its_sender() -> None:
    endpoints = await endpoints_of(2)
    views = [view_of(endpoints)]
    commons = [
        Commons(over(endpoint), lambda endpoint=endpoint: views[-1].group(endpoint.id)) for endpoint in endpoints
    ]
    over(endpoints[1]).post("p0", Use(2, 4096, True))
    await endpoints[1].drain()
    assert not endpoints[0].refused
    views.append(view_of(endpoints, generation=2))
    async with asyncio.timeout(20):
        assert None not in (await asyncio.gather(*(one.segment(4096) for one in commons)))
    assert "only the first in rank" in endpoints[0].refused["p1"]
    for endpoint in endpoints:
        endpoint.abort()


async def test_a_strangers_word_on_a_later_generation_displaces_no_word_of_a_member() -> None:
    endpoints = await endpoints_of(3)
    views = [view_of(endpoints[:2])]
    first, other = (
        Commons(over(endpoint), lambda endpoint=endpoint: views[-1].group(endpoint.id)) for endpoint in endpoints[:2]
    )
    views.append(view_of(endpoints[:2], generation=2))
    soon = asyncio.create_task(first.segment(4096))
    await asyncio.sleep(0)
    for nbytes in range(5000):
        over(endpoints[2]).post("p1", Use(1 << 30, nbytes, True))
    await endpoints[2].drain()
    async with asyncio.timeout(20):
        assert None not in (await asyncio.gather(soon, other.segment(4096)))
    assert sum(map(len, other._early.values())) == 0
    for endpoint in endpoints:
        endpoint.abort()
