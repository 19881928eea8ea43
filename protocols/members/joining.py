"""Joining: how a peer gets into a run, and back into it after the others have given it up.

The peer asks a member, its contact, which version of the state the others hold (`admission`). The next change of the
view lets the peer in. Once the run has started, the peer is let in as a learner, and then fetches the state if its
conversation has one. Before the start, it fetches the state first, and is let in as a member. When the contact is lost,
the peer asks another member. A peer that has held up the others is told to come back later. It waits until then, and
checks now and then that the others are still there.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence

from ..endpoint import Endpoint
from ..link.link import PeerLost
from ..transfer.snapshot_transfer import CatchUpFailed
from ..transport import PeerId
from .errors import Expelled, JoinRefused, MembershipError
from .membership import Membership
from .roster import TRY_FOR
from .view import Version

Fetch = Callable[[Sequence[PeerId], Version], Awaitable[None]]
"""A function that fetches the state of a version, or a later one, from one of these peers, and adopts it. It raises
CatchUpFailed."""

_ASK_MAX = 8
"""A peer asks to be let in at least this many times before it gives up."""


class Entry:
    """Takes one peer into the run, and back into it. `fetch`: fetches the conversation's state; None: the conversation
    has no state that all peers agree on. `over` returns whether the run is over according to this peer's state."""

    def __init__(
        self,
        endpoint: Endpoint,
        membership: Membership,
        *,
        fetch: Fetch | None = None,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._endpoint, self._membership, self._fetch, self._over = endpoint, membership, fetch, over
        self._chance = random.Random(endpoint.id)

    async def enter(self, contact: PeerId) -> None:
        """Join the run through `contact`, or through another member if that is lost; return when this peer is in the
        view, as a member or a learner. Keeps asking for 4 times the endpoint's patience at least. Raises JoinRefused,
        PeerLost, CatchUpFailed and MembershipError."""
        await self._ask(contact, for_s=TRY_FOR * self._endpoint.patience_s, returns=False)

    async def come_back(self, expelled: Expelled) -> None:
        """Join again, for the reason in `expelled`. If the run is over, fetch its last state instead, and return
        without a place in a view. Keeps trying for `Terms.give_up_after_s`, or without limit if that is None, unless
        all known members have ended. Raises MembershipError when it fails."""
        limit_s = self._membership.terms.give_up_after_s
        for last_try in (False, True):
            try:
                await self._ask(
                    expelled.contact, for_s=math.inf if limit_s is None else limit_s, returns=True, fetch=last_try
                )
                return
            except (PeerLost, CatchUpFailed) as error:
                raise MembershipError(f"{expelled.why}, and it cannot come back; is the run over? {error}") from error
            except JoinRefused:
                if self._over():
                    return
                if last_try:
                    raise
                # The run may have ended just now: then the last state can still be fetched.

    async def _ask(self, contact: PeerId, *, for_s: float, returns: bool, fetch: bool = False) -> None:
        """Ask for at least `for_s` seconds: a contact may be busy, or out of reach for a while. `returns`, `fetch`: see
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
                over = returns and all(map(self._endpoint.has_ended, {contact, *self._membership.hosts}))
                if over or (clock() >= until_s and self._endpoint.is_lost(tried[-1]) is not None):
                    raise
                if returns:
                    self._membership.tell_waiting(f"nobody lets it in again; it goes on asking: {failure}")
                tried = [contact]  # a member may be there later, and let this peer in
                await self._pause()
            if asked >= _ASK_MAX and clock() >= until_s:
                raise MembershipError(f"asked to be let in {asked} times, the last time: {failure}")

    async def _pause(self) -> None:
        """Sleep about an interval, with jitter: many peers may have begun to ask at the same moment."""
        await asyncio.sleep(self._endpoint.interval_s * self._chance.uniform(0.5, 1.5))

    async def _through(self, contact: PeerId, *, returns: bool, fetch: bool) -> bool:
        """Ask `contact` once. Returns whether this peer was let in. `returns`: this peer's state is of this run and may
        be the only copy, so it is not replaced by an earlier version. `fetch`: fetch the state first, even if this peer
        could fetch it later as a learner."""
        endpoint, membership = self._endpoint, self._membership
        endpoint.retry(contact)
        welcome = await membership.knock(contact)
        if held_off_s := membership.held_off_s:
            return await self._let_in_within(min(held_off_s, endpoint.patience_s))
        own = membership.standing.state
        # When a run is resumed, a newcomer may be ahead of the others before the first round.
        ahead = own.number > welcome.version.number and (returns or not welcome.view.started)
        due = (fetch or not welcome.view.started) and own != welcome.version and not ahead
        if due and self._fetch is not None:
            donors = [contact, *(peer for peer in welcome.view.ids if peer not in (contact, endpoint.id))]
            await self._fetch(donors, welcome.version)
        await membership.join(contact)
        return await self._let_in_within(TRY_FOR * endpoint.patience_s, lambda: membership.held_off_s > 0)

    async def _let_in_within(self, seconds: float, in_vain: Callable[[], bool] = lambda: False) -> bool:
        membership = self._membership
        try:
            async with asyncio.timeout(seconds):
                await membership.until(lambda: membership.view.generation > 0 or in_vain())
        except (TimeoutError, Expelled):
            return False  # those with our introduction died, or the others gave this peer up again at once
        return membership.view.generation > 0
