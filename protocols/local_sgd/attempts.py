"""Attempts: when a round of averaging can be tried, and when the attempt ends.

An attempt begins when enough peers have gathered, none is coming or going, and all have the same state. It ends with
its view. `stragglers` and `stalls` report an attempt that lasts too long. Before the next attempt, a peer that was
given up joins again, a learner fetches the state, and a peer that is behind catches up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..link.link import PeerLost
from ..members.membership import Expelled, Membership
from ..testpoints import buggify
from ..transfer.chunks import Inbox, Key
from .filling import Filling
from .joining import Entry
from .lag import Lag
from .learner import Learner
from .stalls import Stalls
from .state import State
from .stragglers import Lateness

_LATE_S = 0.5
"""Seconds by which a simulation delays an attempt now and then, as a training step that blocks the loop would."""


class Attempts:
    """One peer's attempts. `state` returns the last committed state; `over`: whether the run is over in that state."""

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
        """Wait until enough peers have gathered and none is coming or going; join again if given up meanwhile.
        Raises MembershipError when this peer cannot go on.
        """
        membership = self._membership
        await self._until(
            lambda: membership.settled or (self._over() and (membership.learns or not membership.view.ids))
        )

    async def settle(self) -> None:
        """Wait as in `gather`, or until the run is over."""
        await self._until(lambda: self._membership.settled or self._over())

    async def next(self, before: State) -> Key | None:
        """The key of the next attempt at the round after `before`; None when that round, or the run, is over."""
        while True:
            with self._inbox.meter.unsettled():
                await self.settle()
            if self._lag.behind is not None:
                key = (self._membership.view.generation, before.round + 1)
                with self._lateness.of(key), self._stalls.at_work("catching up"):
                    await self._again_in(self._lag.catch_up())
            if self._state() is not before:
                return None
            if self._membership.settled and self._lag.behind is None:
                return self._membership.view.generation, before.round + 1
            if self._over():
                return None

    def hopeful(self, key: Key) -> bool:
        """Whether the attempt `key` can still succeed here."""
        settled, generation = self._membership.settled, self._membership.view.generation
        return settled and generation == key[0] and self._lag.behind is None

    async def make(
        self,
        key: Key,
        attempt: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
        filling: Filling | None = None,
    ) -> None:
        """Run `attempt` until it is done or the view has changed, then call `ended` if this peer is still a member.
        `filling`: of this peer's contribution, if that is not complete yet."""
        if buggify("an attempt begins late"):
            await asyncio.sleep(_LATE_S)
        try:
            with self._membership.averaging(), self._lateness.of(key, filling), self._stalls.waiting(filling=filling):
                try:
                    async with self._membership.only_while(lambda: self.hopeful(key)):
                        if self.hopeful(key):
                            await attempt()
                except PeerLost as lost:
                    self._membership.lost(lost.peer, lost.why)
                    await self._membership.until(lambda: not self.hopeful(key))
                ended()
        except Expelled as expelled:
            await self._come_back(expelled)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`; fetch the state while this peer is a learner."""
        membership = self._membership
        while not condition() or membership.failed is not None:
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
