"""The systems that benchmarks/gossip.py measures: each mixes its vector with those of both neighbours in a ring."""

from __future__ import annotations

from collections import Counter

import torch
import torch.distributed as dist
from _environments import DECENT_DP
from _systems import IN_MEMORY, Elsewhere, Gloo, Ours
from torch import Tensor

from samovar.aggregation.mixing.regular import Ring
from samovar.aggregation.periods.registry import parse_period
from samovar.protocols.channel import Channel
from samovar.protocols.clock import RunClock
from samovar.protocols.collectives.bound import Bound
from samovar.protocols.gossip.algorithms.registry import parse_algorithm
from samovar.protocols.gossip.conversation import Gossip, Options
from samovar.protocols.gossip.exchange import NeighbourExchange
from samovar.protocols.gossip.graph import OfTopology
from samovar.protocols.gossip.messages import GOSSIP, Published
from samovar.protocols.gossip.neighbourhood import Neighbourhood
from samovar.protocols.gossip.periods import Periods
from samovar.protocols.gossip.state import State
from samovar.protocols.members.joining import Entry
from samovar.protocols.meter import Meter
from samovar.protocols.stalls.messages import STALLS
from samovar.protocols.stalls.stalls import Stalls
from samovar.protocols.work import Update


def right_in_ring(values: list[float], index: int) -> float:
    """The mean of a value and both its neighbours'."""
    return (values[index - 1] + values[index] + values[(index + 1) % len(values)]) / 3


class OurMixes(Ours):
    """A peer that mixes by D-PSGD as `--protocol gossip` does, with all checks; an exchange for each length of
    vectors."""

    def set_up(self) -> None:
        self.stalls = Stalls(Channel(self.endpoint, STALLS), self.membership, Meter(), lambda: 0)
        self._of_length: dict[int, Neighbourhood] = {}
        self._rounds = Counter[int]()

    async def vector(self, elements: int) -> Tensor:
        if elements not in self._of_length:
            self._of_length[elements] = self._neighbourhood(elements)
        return torch.empty(elements)

    def _neighbourhood(self, elements: int) -> Neighbourhood:
        first = Published(0, 0, torch.zeros(elements))
        exchange = NeighbourExchange(Channel(self.endpoint, f"{GOSSIP} of {elements}"), first)
        return Neighbourhood(exchange, self.membership, self.stalls, OfTopology(Ring(), self.membership), Bound())

    async def result(self, vector: Tensor) -> Tensor:
        elements = vector.numel()
        neighbours, round = self._of_length[elements], self._rounds[elements] + 1
        self._rounds[elements] = round
        mine = await neighbours.publish(Published(round, round, vector))
        taken = await neighbours.take(round, round)
        taken, mix = await neighbours.mix(mine, taken, vector)
        neighbours.ask_ahead(round + 1)
        return mix.vector

    @property
    def right(self) -> float:
        # The graph's vertices are in the order of the peers' ranks.
        ids = [member.id for member in sorted(self.membership.view.members, key=lambda member: member.rank)]
        value = {member.id: member.attributes.data_shard + 1.0 for member in self.membership.view.members}
        return right_in_ring([value[id] for id in ids], ids.index(self.endpoint.id))

    def close(self) -> None:
        for neighbours in self._of_length.values():
            assert bool(neighbours.bytes_shared) is (self.way in IN_MEMORY), f"{self.way}: not as it is called"
            neighbours.close()
        super().close()


class OurRounds(OurMixes):
    """A peer whose whole rounds count: the conversation's, with all that it notes of a round."""

    def set_up(self) -> None:
        super().set_up()
        self._conversations: dict[int, Gossip] = {}

    async def result(self, vector: Tensor) -> Tensor:
        elements = vector.numel()
        if elements not in self._conversations:
            algorithm, period, clock = parse_algorithm("d_psgd"), parse_period("1"), RunClock()
            periods = Periods(period, elements, clock)
            self._conversations[elements] = Gossip(
                self._of_length[elements], self.membership, Entry(self.endpoint, self.membership), clock,
                algorithm, Options(periods=periods, parameters=elements, steps=None, evaluate_every=0),
                State(0, 0, algorithm.begin(torch.zeros(elements), elements), period.start()),
            )  # fmt: skip
        conversation = self._conversations[elements]
        await conversation.bring(Update(vector=vector, weight=1.0, loss=1.0, steps=1))
        return conversation.position().vector


class GlooMixes(Gloo):
    """isend and irecv with both neighbours, then the sum of the three by PyTorch."""

    def exchanged(self, vector: Tensor) -> Tensor:
        sides = [(self.index - 1) % self.peers, (self.index + 1) % self.peers]
        theirs = [torch.empty_like(vector) for _ in sides]
        works = [dist.irecv(one, side) for one, side in zip(theirs, sides, strict=True)]
        works += [dist.isend(vector, side) for side in sides]
        for work in works:
            assert work is not None
            work.wait()
        mixed = vector * (1 / 3)
        for one in theirs:
            mixed.add_(one, alpha=1 / 3)
        return mixed

    @property
    def right(self) -> float:
        return right_in_ring([index + 1.0 for index in range(self.peers)], self.index)


class DecentDP(Elsewhere):
    """DecentralizedDataParallel on its ring, where a peer mixes with one neighbour in each step, in turn."""

    def __init__(self, index: int, peers: int, store: str) -> None:
        super().__init__(DECENT_DP, "_decent_dp_peer.py", index=index, peers=peers, store=f"{store}-decent-dp")
