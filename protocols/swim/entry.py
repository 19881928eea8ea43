"""Entry: how a peer gets into a run whose membership is by SWIM."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from typing import TYPE_CHECKING

from ..endpoint import Endpoint
from ..link.link import PeerLost
from ..members.errors import Expelled, JoinRefused, MembershipError
from ..members.roster import TRY_FOR
from ..transport import PeerId
from .membership import SwimMembership

if TYPE_CHECKING:
    from ..members.port import Way


class SwimEntry:
    """Takes one peer into the run through a member, and back into it after it has left for a while."""

    def __init__(self, endpoint: Endpoint, membership: SwimMembership) -> None:
        self._endpoint, self._membership = endpoint, membership
        self._chance = random.Random(endpoint.id)

    async def enter(self, contact: PeerId) -> None:
        """Join the run through `contact`, asking it again for 4 times the endpoint's patience, and return when this
        peer is in the run: where peers have links to a few only, when it has one. Raises JoinRefused; PeerLost when it
        is not let in by then; MembershipError when the contact has let this peer in, but no peer has made a link with
        it by then."""
        endpoint, membership, clock = self._endpoint, self._membership, asyncio.get_running_loop().time
        until_s = clock() + TRY_FOR * endpoint.patience_s
        let_in = False
        while True:
            endpoint.retry(contact)
            try:
                await membership.knock(contact)
                let_in = True
            except PeerLost:
                if not let_in and clock() >= until_s:
                    raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(endpoint.interval_s * self._chance.uniform(0.5, 1.5)):
                    await membership.until(lambda: membership.view.generation > 0)
                    return
            if let_in and clock() >= until_s:
                raise MembershipError(
                    f"let in by {contact:.12}, but no peer makes a link with it: join through another one"
                )

    async def come_back(self, expelled: Expelled) -> None:
        """Join again, after this peer has left for a while. Under SWIM no peer decides for all others, so that is the
        only reason. Keeps trying for `Terms.give_up_after_s` seconds (None: without limit). Raises MembershipError
        after that, or when it is refused."""
        endpoint, membership, clock = self._endpoint, self._membership, asyncio.get_running_loop().time
        limit_s = membership.terms.give_up_after_s
        until_s = math.inf if limit_s is None else clock() + limit_s
        while True:
            endpoint.retry(expelled.contact)
            try:
                return await membership.come_back(expelled.contact)
            except (PeerLost, JoinRefused) as error:
                if isinstance(error, JoinRefused) or clock() >= until_s:
                    raise MembershipError(
                        f"{expelled.why}, and it cannot come back; is the run over? {error}"
                    ) from error
            await asyncio.sleep(endpoint.interval_s * self._chance.uniform(0.5, 1.5))


if TYPE_CHECKING:

    def _is_of_the_port(entry: SwimEntry) -> Way:
        return entry
