"""Push-sum in whole numbers over links that break: every share is taken or taken back, never both.

The exchange and the ledger of shares are the library's, on a simulated network. In each round a part of the transfers
is broken off: the link between giver and taker is cut at a random moment while question, share or receipt is on its
way, for so long that both sides give the other up, and joined again. The transfers to be broken off are drawn by their
number and not each by itself, so their share is the one that was asked for. Those that were broken off are counted by
their receipts: the giver of such a share never got one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass

import torch
from _simulated import endpoint
from torch import Tensor

from samovar.aggregation.mixing.random_graphs import Epidemic
from samovar.aggregation.mixing.weights import row, takers
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.gossip.exchange import NeighbourExchange
from samovar.protocols.gossip.messages import GOSSIP, NEWEST, Published
from samovar.protocols.gossip.shares import Shares, split
from samovar.protocols.link.link import PeerLost
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network

ONE = 2**40
"""1.0 in fixed point."""
SIZE = 16
WITHIN_S = 0.06
"""Question, share and receipt are on their way so long."""
AFTER = 40
"""A share that nobody has asked for comes back after four rounds."""
BREAK_S, ROUND_S = 40.0, 80.0
"""A cut lasts four times the patience of an endpoint; a round begins so long after the last."""


@dataclass(frozen=True, slots=True)
class Conserved:
    """Of a run: transfers in all, those that were cut and had no receipt, shares that came back, whether the sum of all
    vectors is what it was at the beginning, to the last bit, and the largest error of a peer's mean. `unweighted`: that
    of a peer's sum; `weights`: the least and the largest of any round."""

    transfers: int
    broken: int
    back: int
    exact: bool
    error: float
    unweighted: float
    weights: tuple[float, float]


class Receipts(Shares):
    """A ledger that keeps the receipts: the round of a share, and its taker."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = set[tuple[int, str]]()

    def took(self, taker: str, ask: int) -> None:
        if (given := self._open.get(taker)) is not None:
            self.kept.add((given[1], taker))
        super().took(taker, ask)


class Pusher:
    """One peer: a vector x [SIZE] and a weight, in fixed point, as one vector."""

    def __init__(self, network: Network, index: int, x: Tensor) -> None:
        self.id = f"peer-{index}"
        self.endpoint, self.shares, self.back = endpoint(network, index), Receipts(), 0
        self.sum, self.weights = torch.cat((x, torch.tensor([ONE]))), (1.0, 1.0)
        first = Published(0, 0, self.sum)
        self.exchange = NeighbourExchange(Channel(self.endpoint, GOSSIP), first, shares=self.shares)

    async def round(self, number: int, to: list[str], of: list[str]) -> None:
        """Split, give, and take what can be had."""
        share, self.sum = split(self.sum, len(to))
        await self.exchange.publish(Published(number, number, share), to)
        for taken in await asyncio.gather(*(self._take(peer, number) for peer in of)):
            self.sum = self.sum + taken
        self.take_back()
        least, most = self.weights
        self.weights = min(least, self.weight), max(most, self.weight)

    async def settle(self, others: list[str]) -> None:
        """Ask all others for anything: a question tells which share was taken last. The first one may only find that
        the link of before a cut has ended."""
        for peer in others:
            with contextlib.suppress(PeerLost):
                await self.exchange.take(peer, NEWEST)
            await self.exchange.take(peer, NEWEST)

    def take_back(self) -> None:
        for share in self.shares.back():
            self.sum, self.back = self.sum + share, self.back + 1

    async def _take(self, peer: str, number: int) -> Tensor:
        try:
            return (await self.exchange.take(peer, number)).vector
        except PeerLost:
            return torch.zeros_like(self.sum)

    @property
    def weight(self) -> float:
        return float(self.sum[-1]) / ONE

    @property
    def mean(self) -> Tensor:
        return self.sum[:-1].double() / float(self.sum[-1])


def conserved(peers: int, rounds: int, *, broken: float, seed: int) -> Conserved:
    """So many peers on a random directed graph that is another one in each round; `broken`: the share of transfers that
    are broken off; then some rounds more follow without that."""
    return run_virtual(_run(peers, rounds, broken, seed), seed=seed)


async def _run(peers: int, rounds: int, broken: float, seed: int) -> Conserved:
    chance, network = random.Random(seed), Network(parse_link("1mbit,20ms"), seed)
    begun = torch.randint(-8 * ONE, 8 * ONE, (peers, SIZE), generator=torch.Generator().manual_seed(seed))
    pushers = [Pusher(network, index, begun[index]) for index in range(peers)]
    for one in pushers:
        await one.endpoint.open()
        for other in pushers:
            if other is not one:
                one.endpoint.dial(other.id, "")
    graph, transfers, breaks = Epidemic(2, seed), 0, set[asyncio.Task[None]]()
    cuts = list[tuple[Receipts, tuple[int, str]]]()
    after = AFTER if broken else 0
    for number in range(1, rounds + after + 1):
        edges = [(other, to) for to in range(peers) for other in row(graph, peers, to, number) if other != to]
        transfers += len(edges) if number <= rounds else 0
        for edge in chance.sample(edges, round(broken * transfers) - len(cuts) if number <= rounds else 0):
            cuts.append((pushers[edge[0]].shares, (number, pushers[edge[1]].id)))
            after_s = chance.uniform(0, WITHIN_S)
            breaks.add(asyncio.create_task(_cut(network, pushers, edge, after_s), name="cut"))
        of = [[pushers[other].id for other in row(graph, peers, at, number) if other != at] for at in range(peers)]
        to = [[pushers[other].id for other in takers(graph, peers, at, number)] for at in range(peers)]
        await asyncio.gather(*(one.round(number, *ways) for one, *ways in zip(pushers, to, of, strict=True)))
        await asyncio.sleep(ROUND_S)
    await asyncio.gather(*(one.settle([other.id for other in pushers if other is not one]) for one in pushers))
    broken_off = sum(transfer not in ledger.kept for ledger, transfer in cuts)
    return await _ended(pushers, begun, transfers, broken_off)


async def _ended(pushers: list[Pusher], begun: Tensor, transfers: int, broken: int) -> Conserved:
    for one in pushers:
        one.take_back()
    total = sum((one.sum for one in pushers), torch.zeros(SIZE + 1, dtype=torch.int64))
    expected = torch.cat((begun.sum(0), torch.tensor([len(pushers) * ONE])))
    mean = begun.double().mean(0) / ONE
    error = max(float((one.mean - mean).abs().max()) for one in pushers)
    unweighted = max(float((one.sum[:-1].double() / ONE - mean).abs().max()) for one in pushers)
    least, most = zip(*(one.weights for one in pushers), strict=True)
    for one in pushers:
        one.exchange.close()
        one.endpoint.abort()
    back, exact = sum(one.back for one in pushers), bool(total.equal(expected))
    return Conserved(transfers, broken, back, exact, error, unweighted, (min(least), max(most)))


async def _cut(network: Network, pushers: list[Pusher], edge: tuple[int, int], after_s: float) -> None:
    ends = [pushers[end] for end in edge]
    giver, taker = (one.id for one in ends)
    await asyncio.sleep(after_s)
    network.cut(giver, taker)
    network.cut(taker, giver)
    await asyncio.sleep(BREAK_S)
    network.join(giver, taker)
    network.join(taker, giver)
    for one, other in zip(ends, ends[::-1], strict=True):
        one.endpoint.dial(other.id, "")
