"""The systems that benchmarks/gossip.py measures: each mixes its vector with those of both neighbours in a ring."""

from __future__ import annotations

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
from samovar.protocols.stalls.stalls import STALLS, Stalls
from samovar.protocols.work import Update


def right_in_ring(values: list[float], index: int) -> float:
    """The mean of a value and both its neighbours'."""
    return (values[index - 1] + values[index] + values[(index + 1) % len(values)]) / 3


class OurMixes(Ours):
    """A peer that mixes by D-PSGD: the conversation of `--protocol gossip` itself, one for each length of vectors."""

    def set_up(self) -> None:
        self.stalls = Stalls(Channel(self.endpoint, STALLS), self.membership, Meter(), lambda: 0)
        self._of_length: dict[int, Gossip] = {}
        self.order: list[int] = []

    async def vector(self, elements: int) -> Tensor:
        if elements not in self._of_length:
            self._of_length[elements] = self._conversation(elements)
        self._conversing = self._of_length[elements]
        return torch.empty(elements)

    def _conversation(self, elements: int) -> Gossip:
        algorithm, start, clock = parse_algorithm("d_psgd"), torch.zeros(elements), RunClock()
        periods = Periods(parse_period("1"), elements, clock)
        state = State(0, 0, algorithm.begin(start, elements), parse_period("1").start())
        exchange = NeighbourExchange(Channel(self.endpoint, f"{GOSSIP} of {elements}"), Published(0, 0, start))
        return Gossip(
            Neighbourhood(exchange, self.membership, self.stalls, OfTopology(Ring(), self.membership), Bound()),
            self.membership, Entry(self.endpoint, self.membership), clock, algorithm,
            Options(periods=periods, parameters=elements, steps=None, evaluate_every=0), state,
        )  # fmt: skip

    async def result(self, vector: Tensor) -> Tensor:
        conversation = self._conversing
        await conversation.bring(Update(vector=vector, weight=1.0, loss=1.0, steps=1))
        return conversation.position().vector

    @property
    def right(self) -> float:
        # The graph's vertices are in the order of the peers' ids.
        ids = sorted(member.id for member in self.membership.view.members)
        value = {member.id: member.attributes.data_shard + 1.0 for member in self.membership.view.members}
        return right_in_ring([value[id] for id in ids], ids.index(self.endpoint.id))

    def close(self) -> None:
        for conversation in self._of_length.values():
            assert bool(conversation.bytes_shared) is (self.way in IN_MEMORY), f"{self.way}: not as it is called"
            conversation.close()
        super().close()


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
