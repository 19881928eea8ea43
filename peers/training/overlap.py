"""Overlap: a round is averaged in the background while the next local steps are taken.

Delayed averaging: Zhu et al., "Delayed gradient averaging" (NeurIPS 2021, arXiv 2105.07999), section 3, for models as
in local SGD; and the overlap of Douillard et al., "Streaming DiLoCo" (arXiv 2501.18512), section 2.3, with a delay of
one whole period. At peer i, with H local steps to a round:

    x_i <- H local steps from x_i;    b_i = x_i, contributed to round k
    meanwhile: H local steps from x_i
    x_i <- m_k + (x_i - b_i),         the mean m_k of the b_j, plus the progress of i since; then b_i = x_i ...

So the mean of all x_i is m_k plus the mean of all progress since, as if no peer had run ahead. With an
``--overlap-share`` alpha the last line is x_i <- alpha x_i + (1 - alpha) m_k, as in Streaming DiLoCo: this holds the
peers closer together and forgets some of their progress since. With fragments, either formula applies only to the
fragment of round k. The mean is merged where the local steps end, not when it arrives, so the same run gives the same
bits on any link. The last round has no local steps to hide behind: each peer waits for it and ends with its result.

Cost: a round takes max(local steps, averaging), and memory for one more model. Losses and deaths are handled as without
overlap. A peer that catches up adopts the fetched model as it is and continues from there: its steps since its last
contribution are lost, and the others may wait for its next ones. A peer that is stopped amid a round keeps its
contribution to that round, and its steps since only if the round is already committed here.
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
    """The training loop that `--overlap` selects."""
    return (Overlapped if peer.settings.overlap else Training)(peer, trainer, compute, stop, keep)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A round that is being averaged. `brought`: this peer's contribution, made after `steps` local steps; `meanwhile`:
    the local steps to take in the meantime."""

    brought: Contribution
    steps: int
    meanwhile: int
    outcome: asyncio.Task[Outcome | None]


class Overlapped(Training):
    """The loop with overlap. A round's record covers the time from the previous merge to its own."""

    def __init__(
        self, peer: Peer, trainer: Trainer, compute: Compute, stop: Stop, keep: Callable[[Snapshot], None] | None = None
    ) -> None:
        super().__init__(peer, trainer, compute, stop, keep)
        self._under_way: UnderWay | None = None
        self._told = trainer.steps
        """The local steps counted in all records so far."""

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
        """Take local steps while that round is averaged, then merge its mean. None when stopped, or when the mean was
        adopted from another peer."""
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
        """Write a checkpoint of the contribution, which is not averaged yet. The steps since must not be in a
        checkpoint without the mean of their round."""
        under_way, state = self._under_way, self._peer.state
        if under_way is None:
            return await self._save()
        write = self._writer(state)

        def write_as_brought() -> None:
            if under_way is self._under_way and state is self._begun_from:  # else a later checkpoint is due
                with self._trainer.gone_back(under_way.brought, under_way.steps):
                    write()

        return await self._written(self._compute.run(write_as_brought), state)

    async def _save(self, *, failed: bool = False) -> str:
        """Write a checkpoint. `_save` runs amid a round only when the run was stopped or has failed. It then merges the
        round's outcome if there is one, and else goes back to the contribution."""
        if (under_way := self._under_way) is not None:
            (outcome,) = await asyncio.gather(under_way.outcome, return_exceptions=failed)
            if isinstance(outcome, Outcome):
                await self._take_over(under_way, outcome)
                self._note(NOT_EVALUATED)
            else:
                self._under_way = None
                await self._compute.run(lambda: self._trainer.go_back(under_way.brought, under_way.steps))
        return await super()._save(failed=failed)
