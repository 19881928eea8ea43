"""Allreduce over a network: the same bits everywhere, for any schedule and credit, and no bad chunk goes unnamed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from conformance import group_of, over
from simulated import LINK, endpoint_in, no_complaints, simulate  # noqa: F401
from tiers import soaked
from torch import Tensor

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.schedule import Op, Receipt, Schedule, Step, Transfer
from samovar.aggregation.schedules.verify import prove
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Envelope
from samovar.protocols.collectives import reducer as reducer_module
from samovar.protocols.collectives.allreduce import allreduce
from samovar.protocols.collectives.reducer import Reducer
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.flow import Flow
from samovar.protocols.link.lane import CREDIT_BYTES_MIN
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.view import Attributes, Member, View
from samovar.protocols.transfer.chunks import Chunk, Inbox
from samovar.sims.world.network import Network

KEY, STAGE_ID = (1, 1), (1, 1, 0)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


@dataclass(frozen=True)
class Doubling:
    """Recursive doubling: partners swap the whole vector, so each part is sent and written at once. Powers of two."""

    name: str = "doubling"

    def parts(self, world: int) -> int:
        return 1

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        partners = [rank ^ (1 << level) for level in range(world.bit_length() - 1)]
        return tuple(Step((Transfer(peer, 0),), (Receipt(peer, 0, Op.ADD),)) for peer in partners)


@dataclass(frozen=True)
class Direct:
    """Each rank owns a part: all send it to its owner, who sends the sum to all. Everybody listens first to somebody
    who sends to others first: whoever serves them one by one waits in a circle."""

    name: str = "direct"

    def parts(self, world: int) -> int:
        return world

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        onward = [(rank + i) % world for i in range(1, world)]
        collect = Step(
            tuple(Transfer(peer, peer) for peer in onward),
            tuple(Receipt(peer, rank, Op.ADD) for peer in onward),
        )
        spread = Step(
            tuple(Transfer(peer, rank) for peer in onward),
            tuple(Receipt(peer, peer, Op.COPY) for peer in onward),
        )
        return collect, spread


@dataclass(frozen=True)
class Star:
    """Rank 0 collects all, then sends the parts back in another order than the receivers list them."""

    name: str = "star"

    def parts(self, world: int) -> int:
        return 3

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        others = range(1, world)
        if rank:
            give = Step(tuple(Transfer(0, part) for part in (0, 1, 2)))
            return give, Step((), tuple(Receipt(0, part, Op.COPY) for part in (1, 2, 0)))
        take = Step((), tuple(Receipt(peer, part, Op.ADD) for part in (2, 0, 1) for peer in others))
        return take, Step(tuple(Transfer(peer, part) for peer in others for part in (0, 2, 1)))


@dataclass(frozen=True)
class Planted:
    """A plan of its own for three ranks and one part, written out: ``plan[rank][step]``."""

    plan: tuple[tuple[Step, ...], ...]
    name: str = "planted"

    def parts(self, world: int) -> int:
        return 1

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        return self.plan[rank]


def to(*peers: int) -> tuple[Transfer, ...]:
    return tuple(Transfer(peer, 0) for peer in peers)


def add(*peers: int) -> tuple[Receipt, ...]:
    return tuple(Receipt(peer, 0, Op.ADD) for peer in peers)


def copy(peer: int) -> tuple[Receipt, ...]:
    return (Receipt(peer, 0, Op.COPY),)


# What rank 0 sends to rank 1 is still on its way when rank 0 adds to it, ...
ADDED_MEANWHILE = Planted(
    (
        (Step(to(1)), Step((), add(2)), Step((), copy(1))),
        (Step((), add(0)), Step((), add(2)), Step(to(0, 2))),
        (Step(), Step(to(0, 1)), Step((), copy(1))),
    )
)
# ... or when rank 2, who has received it already, has sent the sum back.
REPLACED_MEANWHILE = Planted(
    (
        (Step(), Step(to(1, 2)), Step((), copy(2))),
        (Step(to(2), add(2)), Step((), add(0)), Step()),
        (Step(to(1), add(1)), Step((), add(0)), Step(to(0))),
    )
)


def company(network: Network, world: int) -> list[Endpoint]:
    return [endpoint_in(network, f"p{rank}") for rank in range(world)]


async def opened(endpoints: list[Endpoint]) -> None:
    for endpoint in endpoints:
        await endpoint.open()
        for other in endpoints:
            endpoint.dial(other.id, other.address)


def reduce_all(
    schedule: Schedule, vectors: list[Tensor], link: str = LINK, *, cut: tuple[str, str] | None = None
) -> tuple[list[Tensor], Network]:
    """`cut`: a way that comes to life only after a while, so that what was sent on it is sent again."""
    network = Network(parse_link(link), 1)

    async def main() -> list[Tensor]:
        endpoints = company(network, len(vectors))
        inboxes = [Inbox(over(endpoint)) for endpoint in endpoints]
        await opened(endpoints)
        ids = [endpoint.id for endpoint in endpoints]
        if cut is not None:
            network.cut(*cut)
            asyncio.get_running_loop().call_later(2.5, network.join, *cut)
        try:
            return await asyncio.gather(
                *(
                    allreduce(over(endpoint), inbox, group_of(ids, endpoint), schedule, vector, stage_id=STAGE_ID)
                    for endpoint, inbox, vector in zip(endpoints, inboxes, vectors, strict=True)
                )
            )
        finally:
            for endpoint in endpoints:
                endpoint.abort()

    return simulate(main()), network


def vectors_of(world: int, size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 * world + size)
    return [torch.randn(size, generator=generator) for _ in range(world)]


def assert_summed(results: list[Tensor], vectors: list[Tensor]) -> None:
    exact = torch.stack(vectors).double().sum(0)
    scale = torch.stack(vectors).double().abs().sum(0)
    assert ((results[0].double() - exact).abs() <= 1e-6 * scale).all()
    assert all(torch.equal(result.view(torch.int32), results[0].view(torch.int32)) for result in results)


@every_schedule
@pytest.mark.parametrize("world", [1, 2, 3, 5, 8, *map(soaked, (4, 6, 7, 9))])
def test_the_sum_is_right_and_the_same_bits_on_all_ranks(schedule: Schedule, world: int) -> None:
    for size in {1, world, world + 1, 1000}:
        vectors = vectors_of(world, size)
        before = [vector.clone() for vector in vectors]
        results, _ = reduce_all(schedule, vectors)
        assert_summed(results, vectors)
        assert all(torch.equal(vector, kept) for vector, kept in zip(vectors, before, strict=True))


@every_schedule
@pytest.mark.parametrize("world", [3, soaked(2), soaked(8)])
def test_a_part_larger_than_a_chunk_arrives_whole(schedule: Schedule, world: int, monkeypatch) -> None:
    monkeypatch.setattr(Endpoint, "chunk_bytes", lambda self, to: 4096)
    vectors = vectors_of(world, 100_000)
    results, network = reduce_all(schedule, vectors, link="1gbit,1ms")
    assert_summed(results, vectors)
    assert network.delivered > world * 100_000 * 4 / 4096, "it did take many chunks"


@every_schedule
def test_float64_and_exact_integers_come_out_exact(schedule: Schedule) -> None:
    vectors = [torch.full((37,), float(3**rank), dtype=torch.float64) for rank in range(5)]
    results, _ = reduce_all(schedule, vectors)
    assert all(torch.equal(result, torch.full((37,), 121.0, dtype=torch.float64)) for result in results)


@pytest.mark.parametrize("credit", [1, soaked(2), soaked(3), soaked(4)])
@pytest.mark.parametrize("schedule", [*SCHEDULES.values(), Direct()], ids=lambda schedule: schedule.name)
def test_a_small_credit_never_deadlocks(schedule: Schedule, credit: int, monkeypatch) -> None:
    monkeypatch.setattr(Endpoint, "chunk_bytes", lambda self, to: 256)
    monkeypatch.setattr(Flow, "share_bytes", lambda self: credit * 512)
    for world in (3, 4, 5):
        vectors = vectors_of(world, world * 64 * 8)  # parts of 8 chunks
        results, _ = reduce_all(schedule, vectors, link="100mbit,1ms")
        assert_summed(results, vectors)


@pytest.mark.parametrize(("schedule", "world"), [(Doubling(), 8), (Direct(), 5), (Star(), 4)])
def test_any_schedule_is_executed_as_it_is_written(schedule: Schedule, world: int, monkeypatch) -> None:
    """Parts that are written while they are sent, that go to several, that are not listened to in order."""
    prove(schedule, world)
    monkeypatch.setattr(Endpoint, "chunk_bytes", lambda self, to: 1024)
    vectors = vectors_of(world, 5000)
    for link in ("1gbit,1ms", "1mbit,1ms", "1gbit,100ms,50ms"):
        results, _ = reduce_all(schedule, vectors, link)
        assert_summed(results, vectors)


@pytest.mark.parametrize("schedule", [ADDED_MEANWHILE, REPLACED_MEANWHILE], ids=["added", "replaced"])
def test_a_chunk_on_its_way_does_not_change(schedule: Schedule) -> None:
    prove(schedule, 3)
    vectors = vectors_of(3, 50)
    results, network = reduce_all(schedule, vectors, cut=("p0", "p1"))
    assert network.happened["cut"], "it was sent twice"
    assert_summed(results, vectors)


@pytest.mark.parametrize("broken", [lambda v: v.numpy(), lambda v: v.reshape(2, 2), lambda v: v.to("meta")])
def test_only_a_flat_cpu_tensor_is_taken(broken: Callable[[Tensor], Any]) -> None:
    async def main() -> None:
        endpoint = endpoint_in(Network(parse_link(LINK), 1), "p0")
        with pytest.raises(ValueError, match="flat CPU tensor"):
            await allreduce(
                over(endpoint),
                Inbox(over(endpoint)),
                group_of(["p0"], endpoint),
                SCHEDULES["ring"],
                broken(torch.zeros(4)),
                stage_id=STAGE_ID,
            )

    simulate(main())


async def with_liar(chunks: list[tuple[Chunk, bytes]]) -> Inbox:
    """An honest p0 sums 10 floats with p1, who sends `chunks`."""
    endpoints = company(Network(parse_link(LINK), 1), 2)
    inbox = Inbox(over(endpoints[0]))
    await opened(endpoints)

    async def lie() -> None:
        for chunk, payload in chunks:
            await over(endpoints[1]).send("p0", chunk, payload)

    lying = asyncio.create_task(lie())
    try:
        await allreduce(
            over(endpoints[0]),
            inbox,
            group_of(["p0", "p1"], endpoints[0]),
            SCHEDULES["ring"],
            torch.zeros(10),
            stage_id=STAGE_ID,
        )
    finally:
        await lying
        for endpoint in endpoints:
            endpoint.abort()
    return inbox


@pytest.mark.parametrize(
    ("chunk", "payload"),
    [
        (Chunk(*STAGE_ID, 1, 0, 5), bytes(20)),  # another step
        (Chunk(*STAGE_ID, 0, 5, 5), bytes(20)),  # another place
        (Chunk(*STAGE_ID, 0, 0, 5), bytes(19)),  # no whole number of elements
        (Chunk(*STAGE_ID, 0, 0, 5), bytes(16)),  # fewer than it says
        (Chunk(*STAGE_ID, 0, 0, 6), bytes(24)),  # more than is due
        (Chunk(*STAGE_ID, 0, 0, 0), b""),  # nothing at all, for ever
        (Chunk(*STAGE_ID, 0, 2**40, 5), bytes(20)),
    ],
)
def test_a_wrong_chunk_names_its_sender(chunk: Chunk, payload: bytes) -> None:
    with pytest.raises(PeerLost, match="when step 0, elements 0 to 5 were due") as lost:
        simulate(with_liar([(chunk, payload)]))
    assert lost.value.peer == "p1"


def test_right_chunks_in_the_harness_of_the_liar_are_accepted() -> None:
    """The same harness with the right chunks: what the test above sees is the chunk, not the harness."""
    right = [
        (Chunk(*STAGE_ID, 0, 0, 5), bytes(20)),
        (Chunk(*STAGE_ID, 1, 5, 3), bytes(12)),
        (Chunk(*STAGE_ID, 1, 8, 2), bytes(8)),
    ]
    inbox = simulate(with_liar(right))
    assert inbox.stale == 0


def took(envelope: Envelope | None) -> bytes:
    assert envelope is not None
    return bytes(envelope.payload)


def test_chunks_of_past_attempts_are_dropped_and_their_credit_given_back(monkeypatch) -> None:
    monkeypatch.setattr(Flow, "share_bytes", lambda self: CREDIT_BYTES_MIN)

    async def main() -> None:
        sender, receiver = endpoints = company(Network(parse_link(LINK), 1), 2)
        inbox = Inbox(over(receiver))
        await opened(endpoints)
        payload = bytes(100_000)
        for _ in range(CREDIT_BYTES_MIN // len(payload) + 1):
            await over(sender).send(
                "p1", Chunk(1, 1, 0, 0, 0, 1), payload
            )  # waits in the inbox, until the credit is used up
        await asyncio.sleep(1)
        inbox.advance((2, 1))
        for _ in range(20):  # without the credit of all before, this would never end
            await over(sender).send("p1", Chunk(1, 2, 0, 0, 0, 1), payload)
        await asyncio.sleep(1)
        assert inbox.stale == 20
        await over(sender).send("p1", Chunk(2, 1, 0, 0, 0, 1), b"1234")
        await asyncio.sleep(1)
        assert took(inbox.take((2, 1, 0), "p0")) == b"1234"
        for endpoint in endpoints:
            endpoint.abort()

    simulate(main())


def test_chunks_may_come_before_their_round_is_begun() -> None:
    async def main() -> None:
        sender, receiver = endpoints = company(Network(parse_link(LINK), 1), 2)
        inbox = Inbox(over(receiver))
        await opened(endpoints)
        await over(sender).send("p1", Chunk(2, 1, 0, 0, 0, 1), b"next generation")
        await over(sender).send("p1", Chunk(1, 2, 0, 0, 0, 1), b"next round")
        await asyncio.sleep(1)
        inbox.advance((1, 2))
        assert took(inbox.take((1, 2, 0), "p0")) == b"next round"
        inbox.advance((2, 1))
        assert took(inbox.take((2, 1, 0), "p0")) == b"next generation"
        for endpoint in endpoints:
            endpoint.abort()

    simulate(main())


def test_a_cancelled_attempt_leaves_nothing_behind_and_the_vector_untouched() -> None:
    async def main() -> None:
        endpoints = company(Network(parse_link(LINK), 1), 3)
        inboxes = [Inbox(over(endpoint)) for endpoint in endpoints]
        await opened(endpoints)
        vectors = vectors_of(3, 100)
        ids = [endpoint.id for endpoint in endpoints]
        attempts = [
            asyncio.create_task(
                allreduce(over(endpoint), inbox, group_of(ids, endpoint), SCHEDULES["ring"], vector, stage_id=STAGE_ID)
            )
            for endpoint, inbox, vector in list(zip(endpoints, inboxes, vectors, strict=True))[:2]
        ]  # p2 never comes
        await asyncio.sleep(3)
        assert not any(attempt.done() for attempt in attempts)
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        assert all(map(torch.equal, vectors, vectors_of(3, 100)))
        for endpoint in endpoints:
            endpoint.abort()

    simulate(main())


@pytest.mark.parametrize("world", [2, 3, 5])
def test_a_small_vector_takes_one_hop_and_has_the_bits_of_two(world: int, monkeypatch) -> None:
    """From everybody to everybody at once, as the owners of the sharded schedule would add it up."""
    vectors = vectors_of(world, 700)
    want, _ = reduce_all(SCHEDULES["sharded"], vectors)
    monkeypatch.setattr(reducer_module, "allreduce", lambda *_, **__: pytest.fail("by two hops"))

    async def main() -> list[Tensor]:
        endpoints = company(Network(parse_link(LINK), 1), world)
        await opened(endpoints)
        members = tuple(
            Member(e.id, e.id, e.address, Attributes(data_shard=rank), 1) for rank, e in enumerate(endpoints)
        )
        view = View(1, members, True)
        reducers = [
            Reducer(over(one), lambda group: SCHEDULES["sharded"], lambda one=one: view.group(one.id))
            for one in endpoints
        ]
        sums = (one.sum(vector, KEY) for one, vector in zip(reducers, vectors, strict=True))
        results = await asyncio.gather(*sums)
        for endpoint in endpoints:
            endpoint.abort()
        return results

    results = simulate(main())
    assert all(torch.equal(result.view(torch.int32), want[0].view(torch.int32)) for result in results)
