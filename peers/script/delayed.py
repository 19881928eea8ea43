"""Overlap in somebody's own loop: a round is averaged in the background while the script takes its next local steps.
What comes out is what `overlap` says of task files."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from ...protocols.local_sgd.local_sgd import Contribution, Outcome
from ..peer import Peer


class Delayed:
    """The round of a peer that is under way. What waits is called on the peer's event loop."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._hidden = ExitStack()
        self._brought: Contribution | None = None
        self._outcome: asyncio.Task[Outcome] | None = None

    @property
    def under_way(self) -> bool:
        return self._outcome is not None

    async def begin(self, brought: Contribution) -> None:
        """Begin to average; local steps go on from here."""
        self._brought = brought
        self._hidden.enter_context(self._peer.averaging.meter.hidden())
        averaging = self._peer.average(brought, compute_s=0.0, steps=0)
        self._outcome = asyncio.create_task(averaging, name="average")

    async def end(self) -> tuple[Contribution, Outcome]:
        """Local steps wait for it now: what was brought, and what came of it."""
        assert self._brought is not None
        assert self._outcome is not None
        self._hidden.close()
        outcome, self._outcome = await self._outcome, None
        return self._brought, outcome

    async def drop(self) -> None:
        """Nobody waits for it any more."""
        self._hidden.close()
        if self._outcome is not None:
            self._outcome.cancel()
            await asyncio.gather(self._outcome, return_exceptions=True)
