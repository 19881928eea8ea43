"""Moshpit averaging while peers are absent: in each round some can be reached by nobody, and keep what they have.

Neighbourhoods, exchange and mixes are the library's, on a simulated network. Before a round the links of the absent
peers are cut, for so long that they and the others give each other up, and joined again after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from _simulated import endpoint
from torch import Tensor

from samovar.aggregation.mixing.grid import Grid
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.collectives.bound import Bound
from samovar.protocols.gossip.exchange import NeighbourExchange
from samovar.protocols.gossip.graph import OfTopology
from samovar.protocols.gossip.messages import GOSSIP, NEWEST, Published
from samovar.protocols.gossip.neighbourhood import Neighbourhood
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.neighbours import Neighbours
from samovar.protocols.members.view import Attributes, Member
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network

SIZE, AXES, SIDE = 64, 3, 4
PEERS = SIDE**AXES
GIVEN_UP_S = 30.0
"""Three times the patience of an endpoint."""


class Left(NamedTuple):
    """The squared distance of all vectors from their mean after each round, over the one before the first, and how far
    the mean itself has moved."""

    squares: Sequence[float]
    mean_moved: float


class Fixed:
    """A membership of a fixed list."""

    def __init__(self, members: Sequence[Member], at: int) -> None:
        self.me, self.neighbours = members[at], Neighbours()
        self.neighbours.become([one for one in members if one is not self.me], lambda member: "")

    def lost(self, peer: str, why: str) -> None:
        raise AssertionError(f"{peer}: {why}")


class Patient:
    """Stalls are nobody's concern here: an absent peer is given up by its link."""

    @contextmanager
    def waiting(self, awaited: object) -> Iterator[None]:
        yield


class Averager:
    """One peer: a vector [SIZE] that it does nothing but mix."""

    def __init__(self, network: Network, members: Sequence[Member], at: int, x: Tensor) -> None:
        self.endpoint, self.x = endpoint(network, at), x
        known: Any = Fixed(members, at)
        patient: Any = Patient()
        self.exchange = NeighbourExchange(Channel(self.endpoint, GOSSIP), Published(0, 0, x))
        graph = OfTopology(Grid(AXES), known, in_groups=True)
        self.neighbours = Neighbourhood(self.exchange, known, patient, graph, Bound())

    async def round(self, number: int) -> None:
        mine = await self.neighbours.publish(Published(number, number, self.x))
        taken = await self.neighbours.take(number, number)
        self.x = (await self.neighbours.mix(mine, taken, self.x))[1].vector

    async def greet(self, other: str) -> None:
        self.endpoint.dial(other, "")
        with contextlib.suppress(PeerLost):
            await self.exchange.take(other, NEWEST)


def absent(rounds: int, share: float, seed: int) -> Left:
    """So many rounds of 64 peers in a grid of 4 x 4 x 4, in each of which another `share` of them is absent."""
    return run_virtual(_run(rounds, share, seed), seed=seed)


async def _run(rounds: int, share: float, seed: int) -> Left:
    chance, network = random.Random(seed), Network(parse_link("100mbit,5ms"), seed)
    x = torch.randn(PEERS, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    members = [Member(f"peer-{at}", str(at), "", Attributes(data_shard=at), 0) for at in range(PEERS)]
    peers = [Averager(network, members, at, x[at]) for at in range(PEERS)]
    rows = {at: [f"peer-{other}" for axis in range(AXES) for other in _row(at, axis)] for at in range(PEERS)}
    for at, one in enumerate(peers):
        await one.endpoint.open()
        for other in rows[at]:
            one.endpoint.dial(other, "")
    mean, found, owed = x.mean(0), list[float](), 0.0
    began = float((x - mean).square().sum())
    for number in range(1, rounds + 1):
        owed += share * PEERS
        gone = chance.sample(range(PEERS), int(owed))
        owed -= len(gone)
        _cut(network, gone, rows)
        here = [one for at, one in enumerate(peers) if at not in gone]
        await asyncio.gather(*(one.round(number) for one in here), asyncio.sleep(GIVEN_UP_S))
        await _join(network, gone, rows, peers)
        now = torch.stack([one.x for one in peers])
        found.append(float((now - mean).square().sum()) / began)
    moved = float((now.mean(0) - mean).norm() / mean.norm())
    for one in peers:
        one.neighbours.close()
        one.endpoint.abort()
    return Left(found, moved)


def _row(at: int, axis: int) -> list[int]:
    """The other peers of a row along this axis."""
    step = SIDE**axis
    first = at - at // step % SIDE * step
    return [other for other in range(first, first + SIDE * step, step) if other != at]


def _cut(network: Network, gone: Sequence[int], rows: Mapping[int, Sequence[str]]) -> None:
    for at in gone:
        for other in rows[at]:
            network.cut(f"peer-{at}", other)
            network.cut(other, f"peer-{at}")


async def _join(
    network: Network, gone: Sequence[int], rows: Mapping[int, Sequence[str]], peers: Sequence[Averager]
) -> None:
    """Join the links again, and have both ends find out that the former ones have ended."""
    pairs = [(peers[at], peers[int(other.removeprefix("peer-"))]) for at in gone for other in rows[at]]
    for one, other in pairs:
        network.join(one.endpoint.id, other.endpoint.id)
        network.join(other.endpoint.id, one.endpoint.id)
    await asyncio.gather(*(near.greet(far.endpoint.id) for pair in pairs for near, far in (pair, pair[::-1])))
