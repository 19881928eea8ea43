"""The inquest finds the member whose numbers made a sum bad.

A sum is bad if it is not finite, or so large that some member must have brought huge numbers (`bound`). The sum itself
does not tell which member: what a neighbour sends may be the sum of many. So when more than half of the view say that
the sum was bad (`commit`), each member checks its own numbers again, and leaves if they are not finite. Then every
contribution is shown to some others (`collectives.shown`), and all reach the same conclusion (`evidence`): a guilty
member is given up by all and kept out for a while (`probation`), and the others run the round again without it. If it
comes back, it fetches their state.

If no member is guilty, because a bit was flipped on its way or because most brought equally large numbers, the sum is
made once more: by messages, each part by its owner directly, and every arriving chunk is checked (`bound.Guard`). A
member that sends other numbers than it has shown is named by the owner that received them; an owner that makes a wrong
sum of right numbers is named by all others. The result of this sum is the round's. In the first of these cases a single
peer's accusation counts, as there is no other evidence.
Cost: none in a round whose sum is good.
On failure: as for an allreduce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import torch
from torch import Tensor

from ...aggregation.evidence import guilty
from ...aggregation.mean import contribute
from ..channel import Channel
from ..collectives.bound import Guard, WrongNumbers
from ..collectives.reducer import Reducer
from ..link.link import PeerLost
from ..members.membership import Membership
from ..offload import off_loop
from ..stalls.probation import Probation
from ..testpoints import sometimes
from ..transfer.chunks import AttemptId
from ..transport import PeerId
from .rounds import Contribution

_TRIES = 3
"""How often one peer may be found guilty in a round. A peer found guilty more often cannot be given up, because too few
members would be left."""


class Inquest:
    """One peer's part in finding the member whose numbers made a sum bad: it shows its contribution, sees some of the
    others', and has a guilty member removed and kept out for a while."""

    def __init__(self, channel: Channel, membership: Membership, reducer: Reducer) -> None:
        self._channel, self._membership, self._reducer = channel, membership, reducer
        self._probation = Probation(membership)
        self._found: tuple[int, Counter[PeerId]] = 0, Counter()
        """A round, and how often each peer was found guilty in it."""

    @asynccontextmanager
    async def on_round(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> AsyncIterator[None]:
        """Context after a bad sum of a round. Before it is entered, the members look for the guilty peer. If none is
        guilty, it is entered, the sum is made once more in it, and every arriving chunk is checked.

        `contribution`: this peer's own; `anchor` [n]: the model that all had before the round. Raises PeerLost for the
        guilty peer, after giving it up; ValueError when this peer's own numbers are bad, when no peer can be given up,
        or when most peers bring so large numbers that their sum leaves the range of the vector's dtype.
        """
        sometimes("a sum was bad")
        guard = await self._find(contribution, anchor, attempt, self._membership.view.ids, 0)
        sometimes("a bad sum was made again")
        try:
            with self._reducer.under(guard):
                yield
        except WrongNumbers as lost:
            self._give_up(lost.peer, lost.why)
            raise

    async def at_site(
        self, contribution: Contribution, anchor: Tensor, attempt: AttemptId, members: Collection[PeerId], turn: int
    ) -> None:
        """Look for the guilty peer after a bad sum of the peers of a site, `members`, at their average `turn` within
        the round. That sum is not repeated. Raises as `on_round`, and returns if no peer is guilty."""
        await self._find(contribution, anchor, attempt, members, turn)

    async def _find(
        self, contribution: Contribution, anchor: Tensor, attempt: AttemptId, members: Collection[PeerId], turn: int
    ) -> Guard:
        round_, (weight, signals, vector) = attempt[1], (contribution.weight, contribution.signals, contribution.vector)

        def mine() -> Tensor:
            message = contribute(vector, weight, signals)
            contribution.check(message)
            return message

        message, norm_max = await off_loop(anchor.nbytes, lambda: (mine(), self._reducer.bound.of(anchor)))
        ids = tuple(peer for peer in self._membership.view.ids if peer in members)
        brought = await self._reducer.shown(ids, message, attempt, turn, len(signals) + 1)
        found = guilty(brought, norm_max=norm_max, dtype=anchor.dtype)
        self._convict({ids[rank]: why for rank, why in found.items()}, round_)
        if sum(one.peak for one in brought) > torch.finfo(anchor.dtype).max:
            raise ValueError(
                f"what most peers bring is so large that its sum leaves the range of {str(anchor.dtype)[6:]}"
            )
        norm_max = 2 * max(norm_max, *(one.norm for one in brought))
        return Guard({peer: one.weight * norm_max for peer, one in zip(ids, brought, strict=True)})

    def _convict(self, guilty: Mapping[PeerId, str], round_: int) -> None:
        if self._found[0] != round_:
            self._found = round_, Counter()
        for peer, why in guilty.items():
            self._found[1][peer] += 1
            if self._found[1][peer] > _TRIES + (peer != self._channel.endpoint.id):  # the guilty peer may go first
                name = self._membership.view.name(peer)
                raise ValueError(f"peer {name} spoils round {round_}, and cannot be done without: {why}")
            self._give_up(peer, why)
        for peer, why in guilty.items():
            raise PeerLost(peer, why)

    def _give_up(self, peer: PeerId, why: str) -> None:
        """Give up `peer`. A guilty peer does not give up itself: it waits until the others do."""
        if peer != self._channel.endpoint.id:
            sometimes("whose numbers cannot be right was given up")
            self._probation.add(peer, self._channel.endpoint.patience_s, why)
            self._membership.suspect(peer, why)
