"""Entry: how a peer gets into a run, and back into it when the others have given it up.

The peer asks a member, the contact, which version the others have (`admission`), and is let in by the next change of
the view. Once the run has started it is let in as a learner, and then fetches the state (`learner`); before that it
fetches the state first, and is let in as a member. When the contact is lost meanwhile, it asks another member. A peer
that has held up the others is told to come later and asks again then; until then it now and then checks that they are
still there.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

from ...aggregation.vector import Layout
from ..channel import Channel
from ..link.link import PeerLost
from ..members.membership import Expelled, JoinRefused, Membership, MembershipError, Standing
from ..members.roster import TRY_FOR
from ..transport import PeerId
from .catch_up import CatchUpFailed, Wanted, fetch_state
from .state import State

_ASK_MAX = 8
"""How often to ask to be let in, at least, before giving up."""


class Entry:
    """One peer's way in. `adopt` takes the fetched state; `over`: whether the run is over in this peer's state."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        layout: Layout,
        *,
        state: Callable[[], State],
        standing: Callable[[], Standing],
        over: Callable[[], bool],
        adopt: Callable[[State], None],
    ) -> None:
        self._channel, self._membership, self._layout = channel, membership, layout
        self._state, self._standing, self._over, self._adopt = state, standing, over, adopt
        self._chance = random.Random(channel.endpoint.id)

    async def enter(self, contact: PeerId) -> None:
        """Join through `contact`, or through another member if it is lost meanwhile.

        Raises JoinRefused, PeerLost, CatchUpFailed, MembershipError.
        """
        await self._ask(contact, for_s=TRY_FOR * self._channel.endpoint.patience_s, returns=False)

    async def come_back(self, expelled: Expelled) -> None:
        """Join again, or fetch the last state if the run is over. Keep trying, up to the limit of the membership if it
        has one. Raises MembershipError."""
        limit_s = self._membership.give_up_after_s
        for last_try in (False, True):
            try:
                await self._ask(
                    expelled.contact, for_s=math.inf if limit_s is None else limit_s, returns=True, fetch=last_try
                )
                return
            except (PeerLost, CatchUpFailed) as error:
                raise MembershipError(
                    f"the others went on without this peer, and it cannot come back; is the run over? {error}"
                ) from error
            except JoinRefused:
                if self._over():
                    return
                if last_try:
                    raise
                # The run may have ended just now: then the last state can still be fetched.

    async def _ask(self, contact: PeerId, *, for_s: float, returns: bool, fetch: bool = False) -> None:
        """Ask for at least `for_s`: a contact may be busy, or unreachable for a while. `returns`, `fetch`: see
        `_through`."""
        clock, tried, failure = asyncio.get_running_loop().time, [contact], ""
        until_s = clock() + for_s
        asked = 0
        while True:
            asked += 1
            try:
                if await self._through(tried[-1], returns=returns, fetch=fetch):
                    return
                failure = "nobody let it in"
                if self._membership.held_off_s:
                    asked, until_s = 0, clock() + for_s  # the others are there and only make this peer wait
                await self._pause()
            except (PeerLost, CatchUpFailed) as error:
                failure = str(error)
                untried = [peer for peer in self._membership.hosts if peer not in tried]
                if untried:
                    tried.append(untried[0])
                    continue
                over = returns and all(map(self._channel.endpoint.has_ended, {contact, *self._membership.hosts}))
                if over or (clock() >= until_s and self._channel.endpoint.is_lost(tried[-1]) is not None):
                    raise
                if returns:
                    self._membership.tell_waiting(f"nobody lets it in again; it goes on asking: {failure}")
                tried = [contact]  # a member may be there later, and let this peer in
                await self._pause()
            if asked >= _ASK_MAX and clock() >= until_s:
                raise MembershipError(f"asked to be let in {asked} times, the last time: {failure}")

    async def _pause(self) -> None:
        """Sleep about an interval, with jitter: many peers may have begun to ask at the same moment."""
        await asyncio.sleep(self._channel.endpoint.interval_s * self._chance.uniform(0.5, 1.5))

    async def _through(self, contact: PeerId, *, returns: bool, fetch: bool) -> bool:
        """Ask `contact` once; whether this peer was let in. `returns`: its state is of this run, so it takes no earlier
        one for it: it may hold the only copy. `fetch`: fetch the state first, even if a learner could do so later."""
        channel, membership = self._channel, self._membership
        channel.endpoint.retry(contact)
        welcome = await membership.knock(contact)
        if held_off_s := membership.held_off_s:
            return await self._let_in_within(min(held_off_s, channel.endpoint.patience_s))
        state, own = self._state(), self._standing().state
        # When a run is resumed, a newcomer may be ahead of the others before the first round.
        ahead = own.round > welcome.version.round and (returns or not welcome.view.started)
        if (fetch or not welcome.view.started) and own != welcome.version and not ahead:
            donors = [contact, *(peer for peer in welcome.view.ids if peer not in (contact, channel.endpoint.id))]
            wanted = Wanted(welcome.version, welcome.version.round)
            self._adopt(await fetch_state(channel, donors, self._layout, outer=len(state.outer), wanted=wanted))
        await membership.join(contact)
        return await self._let_in_within(TRY_FOR * channel.endpoint.patience_s, lambda: membership.held_off_s > 0)

    async def _let_in_within(self, seconds: float, in_vain: Callable[[], bool] = lambda: False) -> bool:
        membership = self._membership
        try:
            async with asyncio.timeout(seconds):
                await membership.until(lambda: membership.view.generation > 0 or in_vain())
        except (TimeoutError, Expelled):
            return False  # those with our introduction died, or the others gave this peer up again at once
        return membership.view.generation > 0
