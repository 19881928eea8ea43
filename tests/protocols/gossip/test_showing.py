"""Neighbours on one machine read each other's vectors where they lie: the bits of the link, and nobody does harm."""

import asyncio
import fcntl
import mmap
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conformance import eventually, over
from nursery import Forked
from torch import Tensor

from samovar.aggregation.codecs.registry import parse_codec
from samovar.aggregation.mixing.regular import Ring
from samovar.protocols.collectives.bound import Bound
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.gossip import neighbourhood as neighbourhood_module
from samovar.protocols.gossip.algorithms.differences import Differences
from samovar.protocols.gossip.board import SLOTS, VectorBoard, VectorWindow
from samovar.protocols.gossip.exchange import NeighbourExchange
from samovar.protocols.gossip.graph import OfTopology
from samovar.protocols.gossip.messages import Published
from samovar.protocols.gossip.mixing import Overwritten, Own, Summands, WrongNumbers, mix
from samovar.protocols.gossip.neighbourhood import Neighbourhood
from samovar.protocols.gossip.periods import Told
from samovar.protocols.gossip.shares import Shares
from samovar.protocols.gossip.taken import Taken
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.members.neighbours import Neighbours
from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.shared_memory import board as board_module
from samovar.protocols.shared_memory import boards as boards_module
from samovar.protocols.shared_memory.board import Lent
from samovar.protocols.shared_memory.boards import BoardOffer
from samovar.protocols.shared_memory.machine import machine

pytestmark = pytest.mark.skipif(not machine(), reason="this machine has no memory to share: not Linux on x86-64")
SIZE = 1000


class Members:
    """A membership of a fixed list, which notes whom a conversation gives up."""

    def __init__(self, me: Member, others: Sequence[Member]) -> None:
        self.me, self.neighbours, self.given_up = me, Neighbours(), dict[str, str]()
        self.neighbours.become(others, lambda member: "")

    def lost(self, peer: str, why: str) -> None:
        self.given_up[peer] = why


@contextmanager
def waiting(awaited: object) -> object:
    yield


@dataclass
class Peer:
    endpoint: Endpoint
    members: Members
    exchange: NeighbourExchange
    neighbours: Neighbourhood

    async def round(self, number: int, vector: Tensor) -> Tensor:
        mine = await self.neighbours.publish(Published(number, number, vector))
        taken = await self.neighbours.take(number, number)
        self.taken, mixed = await self.neighbours.mix(mine, taken, vector)
        return mixed.vector


@asynccontextmanager
async def ring(count: int, *, near: bool = True, size: int = SIZE, **of_exchange: object) -> AsyncIterator[list[Peer]]:
    """Peers in a ring, all on this machine or, as far as they know, each on another one."""
    hub = LocalHub()
    ends = [Endpoint(LocalTransport(hub, f"p{at}"), patience_s=20, rng=random.Random(at)) for at in range(count)]
    here = machine() if near else ""
    everyone = [Member(end.id, end.id, end.address, Attributes(data_shard=0), 1, here) for end in ends]
    peers = []
    for end, me in zip(ends, everyone, strict=True):
        await end.open()
        for other in ends:
            end.dial(other.id, other.address)
        members = Members(me, [one for one in everyone if one is not me])
        exchange = NeighbourExchange(over(end), Published(0, 0, torch.zeros(size)), **of_exchange)
        stalls = SimpleNamespace(waiting=waiting)
        peers.append(
            Peer(end, members, exchange, Neighbourhood(exchange, members, stalls, OfTopology(Ring(), members), Bound()))
        )
    try:
        yield peers
    finally:
        for peer in peers:
            peer.neighbours.close()
            peer.endpoint.abort()


async def mixes(rounds: int, *, near: bool, size: int = SIZE, codec: str = "") -> tuple[list[Tensor], list[Peer]]:
    """The mixes of all peers in the last of so many rounds."""
    chosen = {"differences": Differences(parse_codec(codec))} if codec else {}
    chance = torch.Generator().manual_seed(1)
    async with ring(4, near=near, size=size, **chosen) as peers:
        for number in range(1, rounds + 1):
            vectors = [torch.randn(size, generator=chance) for _ in peers]
            together = zip(peers, vectors, strict=True)
            mixed = await asyncio.gather(*(peer.round(number, vector) for peer, vector in together))
            if number > 2:
                ring_means = [(vectors[at - 1] + vectors[at] + vectors[(at + 1) % 4]) / 3 for at in range(4)]
                assert codec or all(torch.allclose(*both, atol=1e-5) for both in zip(mixed, ring_means, strict=True))
        return mixed, peers


@pytest.mark.parametrize(("size", "codec"), [(1, ""), (SIZE, ""), (300_001, ""), (5000, "top_k:0.1")])
async def test_a_mix_in_shared_memory_has_the_bits_of_a_mix_over_links(size: int, codec: str) -> None:
    shown, showing = await mixes(5, near=True, size=size, codec=codec)
    sent, sending = await mixes(5, near=False, size=size, codec=codec)
    assert all(torch.equal(*both) for both in zip(shown, sent, strict=True))
    assert [peer.neighbours.bytes_shared for peer in sending] == [0] * 4
    for peer in showing:  # the first round's vectors go over the links
        assert 3 * 4 * size * 3 <= peer.neighbours.bytes_shared <= 5 * 4 * size * 3


async def test_a_neighbour_that_missed_a_round_gets_the_vector_and_no_difference() -> None:
    chance = torch.Generator().manual_seed(1)
    async with ring(2, near=False, differences=Differences(parse_codec("top_k:0.1"))) as (giver, taker):
        for number in (1, 2, 3):
            await giver.exchange.publish(Published(number, number, torch.randn(1000, generator=chance)), ["p1"])
            if number != 2:
                async with asyncio.timeout(20):
                    found = await taker.exchange.take("p0", number)
        assert torch.equal(found.vector, giver.exchange.giving.newest.vector)
        assert found.difference is None


async def test_no_difference_leads_from_a_vector_that_is_not_finite() -> None:
    """Else a newcomer could break its neighbours, which begin their estimates anew at its vector."""
    async with ring(3, near=False, differences=Differences(parse_codec("top_k:0.1"))) as (peer, *_):
        bad = Published(1, 1, torch.full((SIZE,), torch.nan))
        peer.exchange.estimates.took("p1", bad)
        taken = Taken({"p1": bad}, {"p1": 1 / 3, "p2": 1 / 3}, 2 / 3, 0.0, None)
        mixed = (await peer.neighbours.mix(Own(torch.ones(SIZE), SIZE**0.5), taken, torch.ones(SIZE)))[1]
        assert bool(mixed.vector.isfinite().all())
        assert [*peer.members.given_up] == ["p1"]
        assert peer.exchange.estimates.round_of("p1") is None


async def test_the_weights_of_a_mix_sum_to_one_although_a_neighbour_gave_nothing() -> None:
    async with ring(3) as (peer, *_):
        due = Taken({}, {"p1": 1 / 3, "p2": 1 / 3}, 1.0, 0.0, None)
        taken = peer.neighbours._among(due, {"p1": Published(1, 1, torch.zeros(1))})
        assert {*taken.weights} == {"p1"}
        assert taken.own + sum(taken.weights.values()) == pytest.approx(1.0)


async def test_neighbours_that_look_send_no_message() -> None:
    async with ring(4) as peers:
        for number in (1, 2, 3):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        sent = [peer.endpoint.bytes_sent for peer in peers]
        for number in (4, 5, 6):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        assert [peer.endpoint.bytes_sent for peer in peers] == sent


async def test_a_message_keeps_its_bytes_when_their_place_on_the_board_is_used_again() -> None:
    """A vector that lies on the board is sent from memory that nobody writes to: it may have to be sent again."""
    sent: list[tuple[object, bytes]] = []
    async with ring(4) as peers:
        outbox = peers[0].endpoint.links.outbox
        post = outbox.post

        def noted(peer: str, header: bytes, payload: object, channel: str) -> None:
            if len(header) and len(payload):
                sent.append((payload, bytes(payload)))
            post(peer, header, payload, channel)

        for number in range(1, 12):
            vector = torch.full((SIZE,), float(number))
            await asyncio.gather(*(peer.round(number, vector) for peer in peers))
            if number == 3:
                outbox.post = noted
                one = await peers[2].exchange.take("p0", number)
                assert torch.equal(one.vector, vector)
    assert sent
    assert all(bytes(payload) == was for payload, was in sent)


async def test_a_reader_that_looks_in_vain_asks_and_then_reads_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhood_module, "_LOOKS", 1)
    monkeypatch.setattr(neighbourhood_module, "_NAPS", 0)
    async with ring(3) as peers:
        for number in (1, 2):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        early = [asyncio.create_task(peer.round(3, torch.ones(SIZE))) for peer in peers[:2]]
        await eventually(lambda: "p0" in peers[2].exchange.giving._wanted and "p1" in peers[2].exchange.giving._wanted)
        shared = peers[0].neighbours.bytes_shared
        late = await peers[2].round(3, torch.full((SIZE,), 4.0))
        assert all(torch.equal(one, late) for one in await asyncio.gather(*early))
        assert torch.allclose(late, torch.full((SIZE,), 2.0))
        assert peers[0].neighbours.bytes_shared == shared + 2 * 4 * SIZE


# Slots in turn


async def test_a_vector_stays_until_a_slower_neighbour_has_read_it() -> None:
    """Three rounds ahead, in a ring that does not wait: the slow one finds the vector of its own round."""
    async with ring(3) as peers:
        for number in (1, 2):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        fast, slow = peers[0], peers[1]
        for number in (3, 4, 5):
            await fast.neighbours.publish(Published(number, number, torch.full((SIZE,), float(number))))
        shown = slow.exchange.find("p0", 3)
        assert shown is not None
        assert shown.round == 3
        assert torch.equal(shown.vector.tensor, torch.full((SIZE,), 3.0))
        slow.exchange.showing.took("p0", 4)
        await fast.neighbours.publish(Published(6, 6, torch.full((SIZE,), 6.0)))
        kept = [one.round for one, _ in fast.exchange.giving._kept._all]
        assert kept == [3, 4, 5, 6], "the third peer has not read them"


async def test_slots_are_enough_for_a_neighbour_that_never_reads() -> None:
    async with ring(3) as peers:
        for number in (1, 2):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        for number in range(3, 30):
            await peers[0].neighbours.publish(Published(number, number, torch.full((SIZE,), float(number))))
            assert peers[1].exchange.find("p0", number) is not None
        assert len(peers[0].exchange.showing._slots) <= SLOTS


async def test_a_reader_overtaken_by_the_writer_takes_the_vector_over_the_link() -> None:
    async with ring(3) as peers:
        for number in (1, 2):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        mine = await peers[0].neighbours.publish(Published(3, 3, torch.ones(SIZE)))
        for peer in peers[1:]:
            await peer.neighbours.publish(Published(3, 3, torch.full((SIZE,), 4.0)))
        taken = await peers[0].neighbours.take(3, 3)
        for number in range(4, 11):
            await peers[1].neighbours.publish(Published(number, number, torch.full((SIZE,), 7.0)))
        assert not taken.vectors["p1"].vector.intact
        taken, mixed = await peers[0].neighbours.mix(mine, taken, torch.ones(SIZE))
        assert torch.allclose(mixed.vector, torch.full((SIZE,), 4.0))
        assert taken.vectors["p1"].round == 10


async def test_shares_are_lent_and_given_back() -> None:
    async with ring(3, shares=Shares()) as peers:
        for peer in peers:  # each has a ledger of its own
            peer.exchange._shares = peer.exchange.giving._shares = peer.exchange.giving._kept._shares = Shares()
            peer.exchange.showing.meet(other.endpoint.id for other in peers if other is not peer)
        await eventually(lambda: all(peer.exchange.showing.shows("p0") for peer in peers[1:]))
        for number in range(1, 12):
            share = torch.full((SIZE,), float(number))
            await peers[0].exchange.publish(Published(number, number, share), ["p1", "p2"])
            took = await asyncio.gather(*(peer.exchange.take("p0", number) for peer in peers[1:]))
            assert all(torch.equal(one.vector, share) for one in took)
        assert peers[1].exchange.showing.bytes_shared == 11 * 4 * SIZE
        await eventually(lambda: not peers[0].exchange.showing._lent)


async def test_without_memory_vectors_go_over_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(nbytes: int) -> int:
        raise OSError("there is none")

    monkeypatch.setattr(board_module, "allocate", none)
    _, peers = await mixes(3, near=True)
    assert [peer.neighbours.bytes_shared for peer in peers] == [0] * 4


async def test_a_board_that_becomes_too_large_goes_on_over_links(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ring(3) as peers:
        for number in (1, 2, 3):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))

        def none(fd: int, start: int, nbytes: int) -> None:
            raise OSError("there is no more")

        monkeypatch.setattr(board_module, "reserve", none)
        for peer in peers:
            peer.exchange.showing._boards.own.reserved.clear()
        shared = peers[0].neighbours.bytes_shared
        for number in (4, 5):
            mixed = await asyncio.gather(*(peer.round(number, torch.full((SIZE,), 2.0)) for peer in peers))
            assert all(torch.allclose(one, torch.full((SIZE,), 2.0)) for one in mixed)
        assert peers[0].neighbours.bytes_shared == shared


# Hostile and broken neighbours


def shown(vector: Tensor) -> tuple[VectorBoard, VectorWindow]:
    """A board with a vector, and a window to it."""
    board = VectorBoard(vector)
    board.clear(0).copy_(vector)
    board.show(0, 1, 1, False, Told())
    return board, VectorWindow(os.getpid(), board.fd, board.secret, vector)


def test_nobody_can_shrink_a_board_or_write_to_anothers() -> None:
    board, window = shown(torch.ones(SIZE))
    for size in (0, 1 << 30):
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(board.fd, size)
    theirs = os.open(f"/proc/{os.getpid()}/fd/{board.fd}", os.O_RDWR)
    with pytest.raises(OSError, match="not permitted"):
        mmap.mmap(theirs, 4096)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(theirs, b"x", 0)
    os.close(theirs)
    assert torch.equal(window.tensor(0), torch.ones(SIZE))


def test_a_board_that_may_shrink_is_not_looked_at() -> None:
    board = VectorBoard(torch.ones(SIZE))
    loose = os.memfd_create("samovar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(loose, os.fstat(board.fd).st_size)
    os.pwrite(loose, board.secret, 0)
    with pytest.raises(OSError, match="may change its size"):
        VectorWindow(os.getpid(), loose, board.secret, torch.ones(SIZE))
    fcntl.fcntl(loose, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    VectorWindow(os.getpid(), loose, board.secret, torch.ones(SIZE))
    with pytest.raises(OSError, match="another secret"):
        VectorWindow(os.getpid(), loose, bytes(32), torch.ones(SIZE))
    with pytest.raises(OSError, match="another size"):
        VectorWindow(os.getpid(), loose, board.secret, torch.ones(8 * SIZE))
    os.close(loose)


def test_a_board_is_still_read_when_its_owner_was_killed() -> None:
    code = (
        "import torch, sys, time\n"
        "from samovar.protocols.gossip.board import VectorBoard\n"
        "from samovar.protocols.gossip.periods import Told\n"
        "board = VectorBoard(torch.ones(1000)); board.clear(0).fill_(3.0); board.show(0, 1, 1, False, Told())\n"
        "print(board.fd, board.secret.hex(), flush=True); time.sleep(60)\n"
    )
    owner = Forked([sys.executable, "-c", code], cwd=Path.cwd(), env={**os.environ}, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    fd, secret = owner.stdout.readline().split()
    window = VectorWindow(owner.pid, int(fd), bytes.fromhex(secret), torch.ones(SIZE))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert window.find(1) is not None
    assert torch.equal(window.tensor(0), torch.full((SIZE,), 3.0))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda there: there.fill_(1e12), "norm"),
        (lambda there: there[7:8].fill_(float("nan")), "not finite"),
        (lambda there: there[7:8].fill_(float("-inf")), "not finite"),
    ],
)
async def test_wrong_numbers_on_a_board_are_named_and_not_mixed(spoil: Callable[[Tensor], Tensor], why: str) -> None:
    async with ring(3) as peers:
        for number in (1, 2, 3):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        await asyncio.gather(*(peer.neighbours.publish(Published(4, 4, torch.ones(SIZE))) for peer in peers[1:]))
        mine = await peers[0].neighbours.publish(Published(4, 4, torch.ones(SIZE)))
        taken = await peers[0].neighbours.take(4, 4)
        bad = next(one for one in peers[1].exchange.showing._slots.values() if one.there.round == 4)
        spoil(bad.there.vector)
        taken, mixed = await peers[0].neighbours.mix(mine, taken, torch.ones(SIZE))
        assert why in peers[0].members.given_up["p1"]
        assert taken.vectors.keys() == {"p2"}
        assert torch.allclose(mixed.vector, torch.ones(SIZE))


async def test_a_vector_that_is_written_over_while_it_is_mixed_is_not_used() -> None:
    board, window = shown(torch.ones(SIZE))
    lent, own = Lent(window, 0, 1), Own(torch.ones(SIZE), float(torch.ones(SIZE).norm()))
    board.clear(0)
    with pytest.raises(Overwritten, match="written over"):
        await mix(Summands(own, 0.5, {"a": lent}, {"a": 0.5}), own.vector, Bound())
    nan = torch.full((SIZE,), float("nan"))
    with pytest.raises(WrongNumbers):
        await mix(Summands(own, 0.5, {"a": nan}, {"a": 0.5}), own.vector, Bound())


async def test_an_offer_of_memory_again_and_again_is_refused() -> None:
    async with ring(3) as peers:
        for number in (1, 2):
            await asyncio.gather(*(peer.round(number, torch.ones(SIZE)) for peer in peers))
        refused = peers[0].endpoint.refused
        over_again = BoardOffer(os.getpid(), 0, bytes(32), 0)
        for _ in range(boards_module._AGAIN_MAX):
            peers[1].exchange.showing._boards._channel.post("p0", over_again)
        mixed = await asyncio.gather(*(peer.round(3, torch.ones(SIZE)) for peer in peers))
        assert "p1" not in refused, "a peer that comes back may offer it again"
        peers[1].exchange.showing._boards._channel.post("p0", over_again)
        await eventually(lambda: "p1" in refused)
        assert "again and again" in refused["p1"]
        mixed += await asyncio.gather(*(peer.round(4, torch.ones(SIZE)) for peer in peers))
        assert all(torch.allclose(one, torch.ones(SIZE)) for one in mixed)


async def test_offers_of_peers_that_are_not_here_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards_module, "ROWS", 1)
    async with ring(3, near=False) as peers:
        for sender in peers[1:]:
            sender.exchange.showing._boards._channel.post("p0", BoardOffer(1, 0, bytes(32), 0))
        await eventually(lambda: bool(peers[0].exchange.showing._boards._early))
        await asyncio.sleep(0)
        assert len(peers[0].exchange.showing._boards._early) == 1
