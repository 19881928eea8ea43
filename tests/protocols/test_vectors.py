"""Vectors from one peer to another: the same bits, whatever the credit, the codec and the order of what comes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch
from conformance import over
from simulated import LINK, endpoint_in, no_complaints, simulate  # noqa: F401
from torch import Tensor

from samovar.aggregation.codecs.registry import parse_codec
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.group import Group
from samovar.protocols.link.link import PeerLost
from samovar.protocols.transfer.chunks import Chunk, Inbox
from samovar.protocols.transfer.vectors import Vectors
from samovar.protocols.wire.frames import PAYLOAD_BYTES_MAX
from samovar.sims.world.network import Network

STAGE_ID = (1, 1, 0)


class Crowd:
    """Some peers p0, p1, ... that know each other."""

    def __init__(self, count: int, link: str = LINK) -> None:
        self.network = Network(parse_link(link), 1)
        self.endpoints: list[Endpoint] = [endpoint_in(self.network, f"p{index}") for index in range(count)]
        self.inboxes = [Inbox(over(endpoint)) for endpoint in self.endpoints]
        self.vectors = [
            Vectors(over(endpoint), inbox) for endpoint, inbox in zip(self.endpoints, self.inboxes, strict=True)
        ]

    def play(self, scene: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            for endpoint in self.endpoints:
                await endpoint.open()
                for other in self.endpoints:
                    if other is not endpoint:
                        endpoint.dial(other.id, other.address)
            try:
                return await scene()
            finally:
                for endpoint in self.endpoints:
                    endpoint.abort()

        return simulate(main())


def vector_of(index: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(index), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_vector_comes_into_the_receivers_tensor_to_the_bit(size: int, dtype: torch.dtype) -> None:
    crowd, vector = Crowd(2), (50 * vector_of(0, size)).to(dtype)
    into = torch.zeros(size + 2, dtype=dtype)

    async def scene() -> None:
        sending = asyncio.create_task(crowd.vectors[0].send("p1", vector, STAGE_ID))
        await crowd.vectors[1].receive("p0", into[1:-1], STAGE_ID)
        await sending

    crowd.play(scene)
    assert torch.equal(into[1:-1], vector)
    assert into[0] == into[-1] == 0


def test_several_neighbours_exchange_at_once_with_less_credit_than_a_vector_has() -> None:
    """All send before they receive: nobody waits in a circle."""
    crowd, size = Crowd(4, link="10mbit,30ms"), 300_000
    mine = [vector_of(index, size) for index in range(4)]

    async def neighbour(index: int, other: int) -> Tensor:
        into = torch.empty(size)
        await crowd.vectors[index].exchange(f"p{other}", mine[index], into, STAGE_ID)
        return into

    async def scene() -> list[Tensor]:
        return await asyncio.gather(*(neighbour(i, j) for i in range(4) for j in range(4) if i != j))

    got = crowd.play(scene)
    wanted = [mine[j] for i in range(4) for j in range(4) if i != j]
    assert all(torch.equal(into, vector) for into, vector in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", ["fp16", "bf16", "int8", "qsgd:4", "sign", "top_k:0.1"])
@pytest.mark.parametrize("size", [1, 40_000])
def test_a_receiver_gets_the_decoded_vector_of_the_codec(name: str, size: int) -> None:
    crowd, codec, vector = Crowd(2), parse_codec(name), vector_of(0, size)
    assert codec.family != "sketch"
    into = torch.empty(size)

    async def scene() -> int:
        await crowd.vectors[0].exchange("p1", vector, torch.empty(size), STAGE_ID, codec)
        return crowd.endpoints[0].bytes_sent

    async def both() -> int:
        other = asyncio.create_task(crowd.vectors[1].exchange("p0", vector_of(1, size), into, STAGE_ID, codec))
        sent = await scene()
        await other
        return sent

    sent = crowd.play(both)
    once = codec.decode(codec.encode(vector, 1), size, torch.float32)
    if name in ("fp16", "bf16", "sign", "top_k:0.1"):
        assert torch.equal(into, once), "it rounds alike whatever the seed"
    assert (into - vector).norm() <= 1.2 * (once - vector).norm() + 1e-6
    assert sent < codec.encoded_bytes(size) + 2000


def test_a_rest_that_is_far_smaller_than_a_chunk_is_sent_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(2)

    def chunks(size: int, chunk_bytes: int) -> list[int]:
        monkeypatch.setattr(crowd.endpoints[0], "chunk_bytes", lambda to: chunk_bytes)
        left, found = torch.empty(size), list[int]()
        while left.numel():
            found.append(crowd.vectors[0].fitting("p1", left))
            left = left[found[-1] :]
        return found

    assert chunks(1024, 4096) == [1024]
    assert chunks(1024 + 64, 4096) == [1024 + 64]
    assert chunks(1024 + 65, 4096) == [1024, 65]
    assert chunks(2 * 1024 + 3, 4096) == [1024, 1024 + 3]
    assert chunks(PAYLOAD_BYTES_MAX // 4 + 1, PAYLOAD_BYTES_MAX) == [PAYLOAD_BYTES_MAX // 4, 1], "none is larger"
    assert chunks(2, 1) == [1, 1]


def test_a_vector_may_be_written_to_as_soon_as_it_is_sent() -> None:
    crowd, vector, into = Crowd(2, link="10mbit,30ms"), vector_of(0, 10_000), torch.empty(10_000)
    was = vector.clone()

    async def scene() -> None:
        await crowd.vectors[0].send("p1", vector, STAGE_ID)
        vector.zero_()
        await crowd.vectors[1].receive("p0", into, STAGE_ID)

    crowd.play(scene)
    assert torch.equal(into, was)


def test_vectors_of_other_turns_wait_until_they_are_asked_for_or_over() -> None:
    crowd = Crowd(2)

    async def scene() -> tuple[Tensor, int]:
        for round in (1, 2, 3):
            await crowd.vectors[0].send("p1", torch.full((5,), float(round)), (1, round, 0))
        await asyncio.sleep(1.0)
        third, first = torch.empty(5), torch.empty(5)
        await crowd.vectors[1].receive("p0", third, (1, 3, 0))
        await crowd.vectors[1].receive("p0", first, (1, 1, 0))
        crowd.inboxes[1].advance((1, 3))
        return torch.stack((first, third)), crowd.endpoints[1].held_bytes

    got, held = crowd.play(scene)
    assert got[:, 0].tolist() == [1.0, 3.0]
    assert held == 0, "the second is dropped"


def test_a_vector_of_a_group_that_is_over_is_dropped() -> None:
    crowd = Crowd(2)
    crowd.inboxes[1]._group = lambda: Group(("p0", "p1"), 2, 1)

    async def scene() -> tuple[int, int]:
        await crowd.vectors[0].send("p1", torch.ones(5), (1, 1, 0))
        await asyncio.sleep(1.0)
        return crowd.inboxes[1].stale, crowd.endpoints[1].held_bytes

    assert crowd.play(scene) == (1, 0)


@pytest.mark.parametrize(
    ("chunk", "payload"),
    [
        (Chunk(*STAGE_ID, 0, 0, 6), b"\1" * 24),  # more than is due
        (Chunk(*STAGE_ID, 0, 1, 4), b"\1" * 16),  # another place
        (Chunk(*STAGE_ID, 0, 0, 0), b""),  # nothing at all, for ever
        (Chunk(*STAGE_ID, 0, 0, 5), b"\1" * 19),  # no whole number of elements
    ],
)
def test_a_chunk_that_is_not_due_is_named_with_its_sender(chunk: Chunk, payload: bytes) -> None:
    crowd, into = Crowd(2), torch.zeros(5)

    async def scene() -> None:
        await over(crowd.endpoints[0]).send("p1", chunk, payload)
        with pytest.raises(PeerLost, match=r"peer p0 is lost: it sent .* when elements 0 to 5 were due"):
            await crowd.vectors[1].receive("p0", into, STAGE_ID)

    crowd.play(scene)
    assert not into.any()


@pytest.mark.parametrize("name", ["int8", "top_k:0.5"])
def test_bytes_that_no_codec_encodes_are_named_with_their_sender(name: str) -> None:
    crowd, codec = Crowd(2), parse_codec(name)
    assert codec.family != "sketch"
    nbytes = codec.encoded_bytes(100)
    count = 100 if codec.family == "hop" else nbytes

    async def scene() -> None:
        await over(crowd.endpoints[0]).send("p1", Chunk(*STAGE_ID, 0, 0, count), bytes([255]) * nbytes)
        with pytest.raises(PeerLost, match=f"it sent what {codec.name} does not decode"):
            await crowd.vectors[1].receive("p0", torch.zeros(100), STAGE_ID, codec)

    crowd.play(scene)


def test_a_sender_that_dies_or_begins_anew_ends_the_wait() -> None:
    crowd = Crowd(3)

    async def scene() -> list[BaseException | None]:
        over(crowd.endpoints[2]).watch({"p0", "p1"})
        waiting = [
            asyncio.create_task(crowd.vectors[2].receive(peer, torch.empty(5), STAGE_ID)) for peer in ("p0", "p1")
        ]
        await asyncio.sleep(0.5)
        crowd.network.close("p0")
        crowd.endpoints[1].forget("p2")
        over(crowd.endpoints[1]).watch({"p2"})
        await asyncio.wait(waiting)
        with pytest.raises(PeerLost):
            await crowd.vectors[2].receive("p0", torch.empty(5), STAGE_ID)
        return [one.exception() for one in waiting]

    assert all(isinstance(error, PeerLost) for error in crowd.play(scene))


@pytest.mark.parametrize("dies", [True, False])
def test_half_a_vector_of_a_sender_that_nobody_watches_is_not_waited_for_for_ever(dies: bool) -> None:
    """The sender dies, or gives up the link; a peer outside of the view has no other reason to watch it."""
    crowd = Crowd(2)

    async def scene() -> None:
        await over(crowd.endpoints[0]).send("p1", Chunk(*STAGE_ID, 0, 0, 3), bytes(12))
        waiting = asyncio.create_task(crowd.vectors[1].receive("p0", torch.empty(5), STAGE_ID))
        await asyncio.sleep(10 * crowd.endpoints[1].patience_s)
        if dies:
            crowd.network.close("p0")
        else:
            crowd.endpoints[0].forget("p1")
        async with asyncio.timeout(10 * crowd.endpoints[1].patience_s):
            with pytest.raises(PeerLost):
                await waiting

    crowd.play(scene)
    assert not crowd.endpoints[1].reception.asked


def test_a_slow_sender_of_a_vector_is_waited_for() -> None:
    crowd, into = Crowd(2), torch.ones(5)

    async def scene() -> None:
        await over(crowd.endpoints[0]).send("p1", Chunk(*STAGE_ID, 0, 0, 3), bytes(12))
        waiting = asyncio.create_task(crowd.vectors[1].receive("p0", into, STAGE_ID))
        await asyncio.sleep(10 * crowd.endpoints[1].patience_s)
        await over(crowd.endpoints[0]).send("p1", Chunk(*STAGE_ID, 0, 3, 2), bytes(8))
        await waiting

    crowd.play(scene)
    assert into.tolist() == [0.0] * 5


def test_a_failed_send_ends_an_exchange() -> None:
    crowd, codec = Crowd(2), parse_codec("int8")
    assert codec.family == "hop"

    async def scene() -> None:
        with pytest.raises(ValueError, match="not finite"):
            await crowd.vectors[0].exchange("p1", torch.full((5,), torch.inf), torch.empty(5), STAGE_ID, codec)
        with pytest.raises(ValueError, match="flat, contiguous CPU tensor"):
            await crowd.vectors[0].send("p1", torch.zeros(2, 2), STAGE_ID)

    crowd.play(scene)
    assert not crowd.vectors[0]._receiving
