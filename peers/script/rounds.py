"""The rounds of a peer beside a user's own loop, and the time that the loop trained between them."""

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
    """The rounds of one peer from when it takes part. All methods run on the peer's event loop."""

    def __init__(self, peer: Peer, losses: Losses) -> None:
        self._peer, self._losses = peer, losses
        self._train_on()

    def _train_on(self, trained_s: float = 0.0) -> None:
        """The script continues; it has trained for `trained_s` seconds since the last round."""
        self._trained_since_s = asyncio.get_running_loop().time() - trained_s
        self._local_steps = self._taking_steps()

    def _taking_steps(self) -> Work:
        return self._peer.stalls.begin(LOCAL_STEPS, lambda: "in the script's own loop")

    async def average(self, brought: Contribution, steps: int) -> Tensor | None:
        """Average `brought`; returns the new model. None: this peer is alone and the result is `brought` itself, where
        a load would only add rounding."""
        if brought.filling is None:
            self._local_steps.end()
        else:
            brought.filling.when_whole(self._local_steps.end)
        outcome = await self._peer.average(brought, compute_s=self._trained_s, steps=steps)
        self._peer.note(loss_told=self._loss_told)
        self._train_on()
        return None if outcome.vector is brought.vector else outcome.vector

    async def average_at_site(self, brought: Contribution) -> Tensor:
        """Average with the site amid a round; returns the model to continue from."""
        trained_s = self._trained_s
        self._local_steps.end()
        vector = await self._peer.average_at_site(brought)
        self._train_on(trained_s)
        return vector

    async def begin(self, delayed: Delayed, brought: Contribution) -> None:
        """Begin a round that runs behind the next local steps."""
        self._local_steps.end()
        await delayed.begin(brought)
        self._local_steps = self._taking_steps()

    async def end(self, delayed: Delayed, steps: int) -> tuple[Contribution, Outcome]:
        """Wait for the round in the background. Its record covers the time and the `steps` since the record before."""
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
