"""Attempts: when an averaging can be tried, and what ends a try.

One begins when enough peers have gathered and none is coming or going, with a state that all go on from; it ends with
its view; one that lasts too long is told of (`stragglers`, `stalls`). A peer that was given up meanwhile joins again, a
learner learns, and one that is behind catches up, before the next.
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
"""How late an attempt begins in a simulation, now and then: as where a step of training holds up the loop."""


class Attempts:
    """One peer's. `state`: what it has committed last; `over`: whether the run is, in that."""

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
        """Wait until enough peers have gathered and none is coming or going; join again when given up meanwhile.
        Raises MembershipError when this peer cannot go on.
        """
        membership = self._membership
        await self._until(
            lambda: membership.settled or (self._over() and (membership.learns or not membership.view.ids))
        )

    async def settle(self) -> None:
        """The same, or until the run is over."""
        await self._until(lambda: self._membership.settled or self._over())

    async def next(self, before: State) -> Key | None:
        """What to try next, of the round after `before`; None when that, or the run, is over."""
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
        """Whether that attempt makes sense still."""
        settled, generation = self._membership.settled, self._membership.view.generation
        return settled and generation == key[0] and self._lag.behind is None

    async def make(
        self,
        key: Key,
        attempt: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
        filling: Filling | None = None,
    ) -> None:
        """Make one: until it is done, or the view has changed under it. `ended`: what to do then, as a member.
        `filling`: of what this peer brings, if that is not whole yet."""
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
        """Wait for `condition`; learn while this peer is a learner."""
        membership = self._membership
        while not condition() or membership.failed is not None:
            if membership.learns and membership.failed is None:
                await self._again_in(self._learner.learn())
            else:
                await self._again_in(membership.until(lambda: condition() or membership.learns))

    async def _again_in(self, work: Awaitable[None]) -> None:
        """Do that, or join again when given up meanwhile."""
        try:
            await work
        except Expelled as expelled:
            await self._come_back(expelled)

    async def _come_back(self, expelled: Expelled) -> None:
        self._inbox.advance((0, 0))  # before its first round a run may be founded anew, with generations from 1 on
        await self._entry.come_back(expelled)
