"""Lag: a round that the others go on from and this peer has not, until it has fetched its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..aggregation.vector import Layout
from .catch_up import CatchUpFailed, fetch_state
from .endpoint import Endpoint
from .members.membership import Membership, MembershipError
from .members.roster import TRY_FOR
from .state import State
from .transport import PeerId
from .witness import sometimes

Wanted = tuple[int, tuple[PeerId, ...]]
"""A round whose result this peer has to fetch, and who has it."""


class Lag:
    """One peer's. `behind`: what it has to fetch, None: nothing. `adopt` takes the state that was fetched."""

    def __init__(
        self, endpoint: Endpoint, membership: Membership, layout: Layout, outer: int, adopt: Callable[[State], None]
    ) -> None:
        """`outer`: how many tensors the outer step keeps."""
        self.behind: Wanted | None = None
        self._endpoint, self._membership, self._layout, self._adopt = endpoint, membership, layout, adopt
        self._outer = outer
        self._tried: tuple[Wanted, float] | None = None

    async def catch_up(self) -> None:
        """Fetch the state that the others go on from. Without success, try again when the view has changed or soon."""
        assert self.behind is not None
        behind = round_, donors = self.behind
        others = dict.fromkeys((*donors, *self._membership.view.ids))
        now, endpoint = asyncio.get_running_loop().time, self._endpoint
        if self._tried is None or self._tried[0] is not behind:
            self._tried = (behind, now())
        try:
            whom = [peer for peer in others if peer != endpoint.id]
            state = await fetch_state(endpoint, whom, self._layout, outer=self._outer, round=round_)
        except CatchUpFailed as error:
            sometimes("no donor had the state")
            tried_s = now() - self._tried[1]
            if self.behind is behind and self._membership.settled and tried_s > TRY_FOR * endpoint.patience_s:
                raise MembershipError(f"cannot catch up with round {round_}: {error}") from error
            await asyncio.sleep(endpoint.interval_s)  # who was lost is replaced, and who was busy has time
            return
        if self.behind is behind and state.round >= round_:
            self._adopt(state)
        elif self.behind is behind:
            await asyncio.sleep(endpoint.interval_s)  # the donor has not committed it yet
