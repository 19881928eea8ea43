"""Overlap: a round is averaged in the background while the next local steps are taken.

Delayed averaging: Zhu et al., "Delayed gradient averaging" (NeurIPS 2021, arXiv 2105.07999), section 3, for models as
in local SGD; and the overlap of Douillard et al., "Streaming DiLoCo" (arXiv 2501.18512), section 2.3, with a delay of
one whole period. At peer i, with H local steps to a round:

    x_i <- H local steps from x_i;    b_i = x_i, brought to round k
    meanwhile: H local steps from x_i
    x_i <- m_k + (x_i - b_i),         what becomes of the b_j in round k, and what i has done since; then b_i = x_i ...

So the mean of all x_i is m_k plus the mean of what all have done since, as if nobody had been ahead. With an
``--overlap-share`` alpha the last line is x_i <- alpha x_i + (1 - alpha) m_k, as Streaming DiLoCo has it: that holds
peers closer together and forgets some of what they have done since. With fragments both are for the one of round k. It
is merged where the local steps end, not when m_k is there: the same run gives the same bits on any link. Nothing is
left to do meanwhile in the last round: it is waited for, and its result is what all end with.

Cost: a round takes max(local steps, averaging), and memory for one more model. On loss and death the round is decided
as without it. Who catches up takes the model that it fetches as it is, and its next local steps from there: what it has
done since its last contribution is lost, and the others may wait for those steps. Who is stopped amid a round keeps
what it brought to that, and the steps since only if the round is over here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ...protocols.local_sgd.local_sgd import Contribution, Outcome
from ...protocols.local_sgd.state import State
from ...protocols.transport import PeerId
from ..checkpoints.checkpoint import Snapshot
from ..peer import Peer
from ..task.evaluation import NOT_EVALUATED, Evaluation
from .compute import Compute
from .loop import Ended, Training
from .stop import Stop
from .trainer import Trainer


def training_of(
    peer: Peer, trainer: Trainer, compute: Compute, stop: Stop, keep: Callable[[Snapshot], None] | None = None
) -> Training:
    """As `--overlap` has it."""
    return (Overlapped if peer.settings.overlap else Training)(peer, trainer, compute, stop, keep)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A round that is averaged: what this peer brought to it after so many `steps`, and how many it takes meanwhile."""

    brought: Contribution
    steps: int
    meanwhile: int
    outcome: asyncio.Task[Outcome | None]


class Overlapped(Training):
    """A round's record is of the time from the one before to when its mean is taken over."""

    def __init__(
        self, peer: Peer, trainer: Trainer, compute: Compute, stop: Stop, keep: Callable[[Snapshot], None] | None = None
    ) -> None:
        super().__init__(peer, trainer, compute, stop, keep)
        self._under_way: UnderWay | None = None
        self._told = trainer.steps
        """Local steps up to the last record."""

    async def run(self, contact: Awaitable[PeerId | None]) -> Ended:
        try:
            return await super().run(contact)
        finally:
            if self._under_way is not None:
                self._under_way.outcome.cancel()
                await asyncio.gather(self._under_way.outcome, return_exceptions=True)

    async def _round(self) -> None:
        under_way = self._under_way
        brought = await (self._local_steps() if under_way is None else self._steps_amid(under_way))
        if brought is None:
            return
        averaging, settings = self._peer.averaging, self._peer.settings
        meanwhile = min(int(settings.period), settings.steps - averaging.state.step - averaging.period)
        if meanwhile <= 0:
            await self._average(brought)
            return
        outcome = asyncio.create_task(
            self._stop.unless(lambda: self._peer.average(brought, compute_s=0.0, steps=0)), name="average"
        )
        self._under_way = UnderWay(brought, self._trainer.steps_in_round, meanwhile, outcome)
        self._trainer.begin_round()

    async def _steps_amid(self, under_way: UnderWay) -> Contribution | None:
        """Local steps while that round is averaged, whose mean is then taken over; None when stopped, or when the mean
        is another's."""
        peer, trainer, loop = self._peer, self._trainer, asyncio.get_running_loop()
        began, elapsed_s, due = loop.time(), peer.elapsed_s, under_way.meanwhile
        with peer.averaging.meter.hidden(), self._taking_steps():
            taken = await self._compute.run(lambda: trainer.train(due, lambda: self._stop.flag), steps=due)
        self._compute_s += loop.time() - began
        outcome = await under_way.outcome if taken == due else None
        if outcome is None:
            return None
        await self._take_over(under_way, outcome)
        await self._after(outcome)
        self._note(self._evaluation)
        return None if outcome.caught_up else await self._compute.run(lambda: trainer.contribution(elapsed_s))

    async def _take_over(self, under_way: UnderWay, outcome: Outcome) -> None:
        self._under_way = None
        if not outcome.caught_up:
            trainer, brought, overlap_share = self._trainer, under_way.brought, self._peer.settings.overlap_share
            await self._compute.run(lambda: trainer.merge(outcome.vector, brought.vector, outcome.part, overlap_share))
            self._begun_from = outcome.state

    def _note(self, evaluation: Evaluation) -> None:
        steps = self._trainer.steps
        self._peer.note(evaluation, spent=(self._compute_s, steps - self._told))
        self._compute_s, self._computed_steps, self._told = 0.0, 0, steps

    async def _evaluated(self, state: State) -> float | None:
        if state is not self._begun_from:
            return await super()._evaluated(state)
        return await self._compute.run(lambda: self._trainer.evaluate(state.vector))

    async def _save_amid(self) -> str:
        """With what was brought, which is not averaged: the steps since may be in no checkpoint without its mean."""
        under_way, state = self._under_way, self._peer.state
        if under_way is None:
            return await self._save()
        write = self._writer(state)

        def write_as_brought() -> None:
            if under_way is self._under_way and state is self._begun_from:  # or there is a later one to be written
                with self._trainer.gone_back(under_way.brought, under_way.steps):
                    write()

        return await self._written(self._compute.run(write_as_brought), state)

    async def _save(self, *, failed: bool = False) -> str:
        """Amid a round only when stopped, or failed: with what is known of it."""
        if (under_way := self._under_way) is not None:
            (outcome,) = await asyncio.gather(under_way.outcome, return_exceptions=failed)
            if isinstance(outcome, Outcome):
                await self._take_over(under_way, outcome)
                self._note(NOT_EVALUATED)
            else:
                self._under_way = None
                await self._compute.run(lambda: self._trainer.go_back(under_way.brought, under_way.steps))
        return await super()._save(failed=failed)
