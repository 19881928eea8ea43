"""Attempts: decides when a peer tries to average a round, and when such an attempt ends. An attempt begins on a peer
when enough peers have gathered, none is joining or leaving, and the peer holds the state from which the members
continue. It ends when the view (the agreed list of members) changes. `stragglers` and `stalls` report an attempt that
lasts too long. Before the next attempt, a peer that was given up joins again, a learner fetches the state, and a peer
that is behind catches up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ..filling import Filling
from ..link.link import PeerLost
from ..members.errors import Expelled
from ..members.joining import Entry
from ..members.membership import Membership
from ..stalls.stalls import Stalls
from ..testpoints import buggify
from ..transfer.chunks import AttemptId, Inbox
from .lag import Lag
from .learner import Learner
from .state import State
from .stragglers import Lateness

_LATE_S = 0.5
"""Seconds by which a simulation sometimes delays an attempt, as a training step that blocks the event loop would."""


class Attempts:
    """Decides when one peer tries to average a round, and ends such an attempt when the view changes. `state` returns
    the last committed state; `over` returns whether the run is over in that state."""

    def __init__(
        self,
        membership: Membership,
        lag: Lag,
        learner: Learner,
        entry: Entry,
        inbox: Inbox,
        lateness: Lateness,
        stalls: Stalls,
        *,
        state: Callable[[], State],
        over: Callable[[], bool],
    ) -> None:
        self._membership, self._lag, self._learner, self._entry = membership, lag, learner, entry
        self._inbox, self._stalls = inbox, stalls
        self._lateness, self._state, self._over = lateness, state, over

    async def gather(self) -> None:
        """Before the first round: wait until enough peers have gathered and none is joining or leaving, or the run is
        over. If the members give this peer up meanwhile, it joins again. Raises MembershipError when this peer cannot
        go on."""
        membership = self._membership
        await self._until(
            lambda: membership.settled or (self._over() and (membership.learns or not membership.view.ids))
        )

    async def next(self, before: State) -> AttemptId | None:
        """Wait until the next attempt at the round after `before` can begin, and return its id, (generation, round):
        the generation is the number of the view. None: that round is committed already (`state` is another one), or the
        run is over. A peer that is behind first catches up, and one that the members have given up joins again. Raises
        MembershipError when this peer cannot go on."""
        while True:
            await self._until(lambda: self._membership.settled or self._over())
            if self._lag.behind is not None:
                attempt = (self._membership.view.generation, before.round + 1)
                with self._lateness.of(attempt), self._stalls.at_work("catching up"):
                    await self._again_in(self._lag.catch_up())
            if self._state() is not before:
                return None
            if self._membership.settled and self._lag.behind is None:
                return self._membership.view.generation, before.round + 1
            if self._over():
                return None

    def hopeful(self, attempt: AttemptId) -> bool:
        """Whether this attempt can still succeed on this peer: the view is the same and settled, and this peer is not
        behind."""
        membership = self._membership
        return membership.view.generation == attempt[0] and self._lag.behind is None and membership.settled

    @asynccontextmanager
    async def at(self, attempt: AttemptId, filling: Filling | None = None) -> AsyncIterator[None]:
        """Context of one attempt, in which it is watched for lateness. If the members give this peer up in it, this
        peer joins again. `filling`: tracks this peer's contribution while it is incomplete; None: it is complete."""
        if buggify("an attempt begins late"):
            await asyncio.sleep(_LATE_S)
        try:
            with self._membership.busy(), self._lateness.of(attempt, filling), self._stalls.waiting(filling=filling):
                yield
        except Expelled as expelled:
            await self._come_back(expelled)

    @asynccontextmanager
    async def while_hopeful(self, attempt: AttemptId) -> AsyncIterator[bool]:
        """Context that is cancelled as soon as this attempt can no longer succeed; yields whether it can at its
        beginning. If PeerLost is raised inside, the peer is reported to the membership, and the context waits for the
        end of the attempt. Raises the error of `Membership.failed`, such as Expelled."""
        try:
            async with self._membership.only_while(lambda: self.hopeful(attempt)):
                yield self.hopeful(attempt)
        except PeerLost as lost:
            self._membership.lost(lost.peer, lost.why)
            await self._membership.until(lambda: not self.hopeful(attempt))

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which counts as wait; fetch the state while this peer is a learner."""
        membership = self._membership
        while not condition() or membership.failed is not None:
            with self._inbox.meter.unsettled():
                if membership.learns and membership.failed is None:
                    await self._again_in(self._learner.learn())
                else:
                    await self._again_in(membership.until(lambda: condition() or membership.learns))

    async def _again_in(self, work: Awaitable[None]) -> None:
        """Await `work`; join again if this peer is given up meanwhile."""
        try:
            await work
        except Expelled as expelled:
            await self._come_back(expelled)

    async def _come_back(self, expelled: Expelled) -> None:
        self._inbox.advance((0, 0))  # a run without a first round may be founded anew, with generations from 1 on
        await self._entry.come_back(expelled)
