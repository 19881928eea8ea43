"""Lag: a version that the others go on from and this peer has not, until it has fetched it.

What is fetched is held against the fingerprint that the members agreed on, never against its donor's own word. A view
that asks for the same version changes nothing; and parts that have come are kept from one try to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ...aggregation.vector import Layout
from ..channel import Channel
from ..members.membership import Expelled, Membership
from ..members.roster import TRY_FOR
from ..members.view import Version
from ..testpoints import sometimes
from ..transport import PeerId
from .catch_up import CatchUpFailed, Wanted, fetch_state
from .state import State


class Behind(NamedTuple):
    """A version that this peer has to fetch, and who has it."""

    version: Version
    donors: tuple[PeerId, ...]


class Lag:
    """One peer's. `behind`: what it has to fetch, None: nothing. `adopt` takes the state that was fetched."""

    def __init__(
        self, channel: Channel, membership: Membership, layout: Layout, outer: int, adopt: Callable[[State], None]
    ) -> None:
        """`outer`: how many tensors the outer step keeps."""
        self.behind: Behind | None = None
        self._channel, self._membership, self._layout, self._adopt = channel, membership, layout, adopt
        self._outer = outer
        self._since: tuple[Version, float] | None = None
        self._kept: dict[bytes, bytes] = {}

    def wants(self, version: Version) -> bool:
        """Whether that is what it has to fetch now."""
        return self.behind is not None and self.behind.version == version

    async def catch_up(self) -> None:
        """Fetch the state that the others go on from. Without success, try again when the view has changed or soon; a
        member that has had none for long joins anew, as all wait for it. Raises Expelled, MembershipError."""
        assert self.behind is not None
        version, donors = self.behind
        others = dict.fromkeys((*donors, *self._membership.view.ids))
        now, endpoint = asyncio.get_running_loop().time, self._channel.endpoint
        if self._since is None or self._since[0] != version:
            self._since = (version, now())
        try:
            async with self._membership.only_while(lambda: self.wants(version)):
                view = self._membership.view
                whom = [peer for peer in others if peer != endpoint.id and not view.are_apart(peer, endpoint.id)]
                wanted = Wanted(version, version.round, exact=True)
                fetched = await fetch_state(
                    self._channel, whom, self._layout, outer=self._outer, wanted=wanted, kept=self._kept
                )
                self._kept.clear()
                self._adopt(fetched)
        except CatchUpFailed:
            sometimes("no donor had the state")
            if whom and self._membership.settled and now() - self._since[1] > TRY_FOR * endpoint.patience_s:
                raise Expelled(whom[0]) from None
            await asyncio.sleep(endpoint.interval_s)  # who was lost is replaced, and who was busy has time
