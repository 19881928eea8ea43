"""Averages of pairs: a peer averages its vector with that of one neighbour, and neither waits for the other's steps.

    active side                                     passive side, amid its local steps
    publishes its vector v
    asks for the other's                            gives its own copy u as it is
    goes on from (u + v) / 2                        asks for v, and adds (v - u) / 2 to its copy

The copy u is the passive side's vector as others get it; it may change while local steps go on from an older one. The
passive side answers at once, whatever it is waiting for itself, so no cycle of waiting peers can arise. The two sides
add opposite vectors, so the sum of all vectors is conserved, whatever else has changed a copy meanwhile. If a transfer
breaks off, one side may have averaged alone; the sum then changes by half of the difference.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

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


class PairNeighbourhood(Neighbourhood):
    """A neighbourhood in which this peer averages with one neighbour in each round, and other peers average with this
    one at any time, which changes its vector."""

    def __init__(
        self, exchange: NeighbourExchange, members: Members, stalls: Stalls, graph: Graph, bound: Bound
    ) -> None:
        super().__init__(exchange, members, stalls, graph, bound)
        self._copy = exchange.giving.newest
        """This peer's vector as others get it."""
        self._changes: list[Tensor] = []
        """Changes of the copy by others' averages that this peer's next local steps do not begin from."""
        self._meetings: dict[PeerId, asyncio.Task[None]] = {}
        self._asking: dict[PeerId, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Two questions to one peer would be answered by the last only."""
        exchange.giving.on_meet = self._meets

    async def publish(self, one: Published) -> Own:
        """Publish `one` for this peer's takers, after the changes by other peers' averages since the last call of
        `back` were added to it. Returns the vector that takers get, with its norm (`Neighbourhood.publish`)."""
        for change in self.back():
            one = replace(one, vector=one.vector + change)
        mine = await super().publish(one)
        self._shows(replace(one, vector=mine.vector))
        return mine

    async def mix(self, mine: Own, taken: Taken, anchor: Tensor) -> tuple[Taken, Mix]:
        """Average this peer's own vector with the one that was `taken`, if it is right (`Neighbourhood.mix`). Returns
        what was taken, and the mix. Other peers see the mixed vector from now on."""
        taken, mixed = await super().mix(mine, taken, anchor)
        for peer, other in taken.vectors.items():
            assert isinstance(other, Published)
            change = taken.weights[peer] * (other.vector - mine.vector)
            self._shows(replace(self._copy, vector=self._copy.vector + change))
        return taken, mixed

    def back(self) -> list[Tensor]:
        """The changes [n] of this peer's vector by averages that other peers have made with it since the last call, or
        since the last `publish`, which has added the earlier ones. The caller adds them to its own mixed vector."""
        changes, self._changes = self._changes, []
        return changes

    def begin_anew(self, good: Mapping[PeerId, Published]) -> None:
        """Note that this peer has replaced its state by the others', or goes on from its model only. Changes by
        averages that others have made with it before, and that `back` has not returned, are dropped. `good` is
        ignored."""
        self._changes.clear()

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
                change = (theirs.vector - given) / 2
                self._changes.append(change)
                self._shows(replace(self._copy, vector=self._copy.vector + change))

    def _shows(self, copy: Published) -> None:
        self._copy = copy
        self._exchange.giving.show(copy)
