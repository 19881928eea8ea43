"""Overlap in a user's own loop: a round is averaged in the background while the script takes its next local steps. The
arithmetic is that of `overlap` for task files."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from ...protocols.local_sgd.local_sgd import Contribution, Outcome
from ..peer import Peer


class Delayed:
    """The background round of one peer. The async methods run on the peer's event loop."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._hidden = ExitStack()
        self._brought: Contribution | None = None
        self._outcome: asyncio.Task[Outcome] | None = None

    @property
    def under_way(self) -> bool:
        return self._outcome is not None

    async def begin(self, brought: Contribution) -> None:
        """Begin to average `brought`; local steps continue meanwhile."""
        self._brought = brought
        self._hidden.enter_context(self._peer.averaging.meter.hidden())
        averaging = self._peer.average(brought, compute_s=0.0, steps=0)
        self._outcome = asyncio.create_task(averaging, name="average")

    async def end(self) -> tuple[Contribution, Outcome]:
        """Wait for the round, with local steps paused. Returns the contribution and the outcome."""
        assert self._brought is not None
        assert self._outcome is not None
        self._hidden.close()
        outcome, self._outcome = await self._outcome, None
        return self._brought, outcome

    async def drop(self) -> None:
        """Cancel the round: nothing waits for it any more."""
        self._hidden.close()
        if self._outcome is not None:
            self._outcome.cancel()
            await asyncio.gather(self._outcome, return_exceptions=True)
