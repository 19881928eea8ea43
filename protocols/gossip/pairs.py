"""Averages of pairs: a peer averages its vector with that of one neighbour, and neither waits for the other's steps.

    active side                                     passive side, amid its local steps
    publishes its vector v
    asks for the other's                            gives its own copy u as it is
    goes on from (u + v) / 2                        asks for v, and adds (v - u) / 2 to its copy

The copy u is the passive side's vector as others get it; it may change while local steps go on from an older one. The
passive side answers at once, whatever it is waiting for itself, so no cycle of waiting peers can arise. The two sides
add opposite vectors, so the sum of all vectors is conserved, whatever else has changed a copy meanwhile. If a transfer
breaks off, one side may have averaged alone; the sum then changes by half of the difference.

All this is about parameters, to which local steps add updates: what is added meanwhile commutes with these, and none of
it may be lost. Local steps add nothing to a statistic, such as the running variance of batch norm. They move it towards
the value of each batch, r <- a r + (1 - a) s, by which it forgets its past. The difference of two former values is then
too large by 1 / a^K after K steps, and a variance plus such a difference may be below 0. There is also no sum to
conserve. So each side sets a statistic to the mean of the other's and of its own as it is by then, which lies between
the two.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ..collectives.bound import Bound, WrongNumbers
from ..link.link import PeerLost
from ..members.port import Members
from ..stalls.stalls import Stalls
from ..transport import PeerId
from .exchange import NeighbourExchange
from .graph import Graph
from .messages import NEWEST, Published
from .mixing import Mix, Own, check
from .neighbourhood import Neighbourhood
from .taken import Taken

_AT_ONCE = 4
"""The most averages that other peers may have under way with this one, as the passive side, at a time."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """An average of a vector with that of another peer, by which the vector goes the share `weight` of the way: it adds
    `change` [p] to the parameters, and moves the statistics behind them towards `theirs` [n - p]."""

    change: Tensor
    theirs: Tensor
    weight: float

    @classmethod
    def of(cls, own: Tensor, theirs: Tensor, weight: float, parameters: int) -> Self:
        """The average of the vectors `own` and `theirs` [n], of whose elements the first `parameters` are
        parameters."""
        change = weight * (theirs[:parameters] - own[:parameters])
        return cls(change, theirs[parameters:].clone(), weight)

    def applied(self, vector: Tensor) -> Tensor:
        """`vector` [n] after the average, as a new tensor."""
        size, after = self.change.numel(), torch.empty_like(vector)  # no copies: this is a whole model
        torch.add(vector[:size], self.change, out=after[:size])
        torch.lerp(vector[size:], self.theirs, self.weight, out=after[size:])
        return after


class PairNeighbourhood(Neighbourhood):
    """A neighbourhood in which this peer averages with one neighbour in each round, and other peers average with this
    one at any time, which changes its vector. The first `parameters` elements of a vector are parameters, the others
    statistics."""

    def __init__(
        self,
        exchange: NeighbourExchange,
        members: Members,
        stalls: Stalls,
        graph: Graph,
        bound: Bound,
        parameters: int,
    ) -> None:
        super().__init__(exchange, members, stalls, graph, bound)
        self._parameters = parameters
        self._copy = exchange.giving.newest
        """This peer's vector as others get it."""
        self._met: list[Meeting] = []
        """Averages of the copy by others, from which this peer's next local steps do not begin."""
        self._meetings: dict[PeerId, asyncio.Task[None]] = {}
        self._asking: dict[PeerId, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Two questions to one peer would be answered by the last only."""
        exchange.giving.on_meet = self._meets

    async def publish(self, one: Published) -> Own:
        """Publish `one` for this peer's takers, after it was `completed`. Returns the vector that takers get, with its
        norm (`Neighbourhood.publish`)."""
        mine = await super().publish(replace(one, vector=self.completed(one.vector)))
        self._shows(replace(one, vector=mine.vector))
        return mine

    async def mix(self, mine: Own, taken: Taken, anchor: Tensor) -> tuple[Taken, Mix]:
        """Average this peer's own vector with the one that was `taken`, if it is right (`Neighbourhood.mix`). Returns
        what was taken, and the mix. Other peers see the mixed vector from now on."""
        taken, mixed = await super().mix(mine, taken, anchor)
        for peer, other in taken.vectors.items():
            assert isinstance(other, Published)
            self._meets_copy(Meeting.of(mine.vector, other.vector, taken.weights[peer], self._parameters))
        return taken, mixed

    def completed(self, mixed: Tensor) -> Tensor:
        """This peer's vector `mixed` [n] after the averages that other peers have made with it since the last call, or
        since the last `publish`, which has the earlier ones. If there are none it is `mixed` itself."""
        met, self._met = self._met, []
        for meeting in met:
            mixed = meeting.applied(mixed)
        return mixed

    def begin_anew(self, good: Mapping[PeerId, Published]) -> None:
        """Note that this peer has replaced its state by the others', or goes on from its model only. Averages that
        others have made with it since it was last `completed` are dropped. `good` is ignored."""
        self._met.clear()

    def close(self) -> None:
        """Stop giving vectors to other peers, and cancel the averages with others that are under way."""
        for meeting in self._meetings.values():
            meeting.cancel()
        super().close()

    async def _ask(self, peer: PeerId, round: int, given: Callable[[], None]) -> Published:
        meets = round if round != NEWEST else 0
        async with self._asking[peer]:
            return await self._exchange.take(peer, NEWEST, given, meets=meets)

    def _meets(self, peer: PeerId, round: int, given: Published) -> bool:
        """`peer` averages its vector of `round` with `given`. Returns False when that cannot be now."""
        if peer in self._meetings or len(self._meetings) >= _AT_ONCE:
            return False
        task = self._meetings[peer] = asyncio.create_task(self._meet(peer, round, given.vector), name="gossip")
        task.add_done_callback(lambda _: self._meetings.pop(peer))
        return True

    async def _meet(self, peer: PeerId, round: int, given: Tensor) -> None:
        try:
            async with self._asking[peer]:
                theirs = await self._exchange.take(peer, round)
            self._received[peer] += theirs.carried_bytes
            await check(peer, theirs.vector, given, self._bound)
        except WrongNumbers as wrong:
            self._members.lost(peer, wrong.why)
        except PeerLost:
            pass  # the membership hears of it, too
        else:
            if theirs.round == round:
                self._met.append(Meeting.of(given, theirs.vector, 0.5, self._parameters))
                self._meets_copy(self._met[-1])

    def _meets_copy(self, meeting: Meeting) -> None:
        self._shows(replace(self._copy, vector=meeting.applied(self._copy.vector)))

    def _shows(self, copy: Published) -> None:
        self._copy = copy
        self._exchange.giving.show(copy)
