"""The rounds of a peer that lives beside somebody's own loop, and the time it trained between them."""

from __future__ import annotations

import asyncio
import math

from torch import Tensor

from ...protocols.local_sgd.local_sgd import Contribution, Outcome
from ...protocols.local_sgd.works import LOCAL_STEPS, Work
from ..peer import Peer
from .delayed import Delayed
from .model_hook import Losses


class ScriptRounds:
    """One peer's, from when it has taken its place. All is called on the peer's event loop."""

    def __init__(self, peer: Peer, losses: Losses) -> None:
        self._peer, self._losses = peer, losses
        self._train_on()

    def _train_on(self, trained_s: float = 0.0) -> None:
        """The script goes on, and has trained for so long since the last round."""
        self._trained_since_s = asyncio.get_running_loop().time() - trained_s
        self._local_steps = self._taking_steps()

    def _taking_steps(self) -> Work:
        return self._peer.stalls.begin(LOCAL_STEPS, lambda: "in the script's own loop")

    async def average(self, brought: Contribution, steps: int) -> Tensor | None:
        """The model after it; None when it is what was brought, as nobody else is there: only rounding would differ."""
        if brought.filling is None:
            self._local_steps.end()
        else:
            brought.filling.when_whole(self._local_steps.end)
        outcome = await self._peer.average(brought, compute_s=self._trained_s, steps=steps)
        self._peer.note(loss_told=self._loss_told)
        self._train_on()
        return None if outcome.vector is brought.vector else outcome.vector

    async def average_at_site(self, brought: Contribution) -> Tensor:
        """The model to go on from, amid a round."""
        trained_s = self._trained_s
        self._local_steps.end()
        vector = await self._peer.average_at_site(brought)
        self._train_on(trained_s)
        return vector

    async def begin(self, delayed: Delayed, brought: Contribution) -> None:
        """Of one that goes on behind the next local steps."""
        self._local_steps.end()
        await delayed.begin(brought)
        self._local_steps = self._taking_steps()

    async def end(self, delayed: Delayed, steps: int) -> tuple[Contribution, Outcome]:
        """The end of one that was under way; its record is of the time, and the `steps`, since the one before."""
        trained_s = self._trained_s
        self._local_steps.end()
        ended = await delayed.end()
        self._peer.note(loss_told=self._loss_told, spent=(trained_s, steps))
        self._train_on()
        return ended

    @property
    def _trained_s(self) -> float:
        return asyncio.get_running_loop().time() - self._trained_since_s

    @property
    def _loss_told(self) -> bool:
        return not math.isnan(self._losses.mean)
