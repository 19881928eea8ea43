"""A task file's trainer as a replica. Its work runs on the compute thread, beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ...protocols.conversation import Position
from ...protocols.stalls.stalls import Stalls
from ...protocols.stalls.works import EVALUATION
from ...protocols.work import Foresee, Query, Steps, Update, Work
from ..checkpoints.checkpoint import Snapshot
from ..records.records import ExchangeRecord
from ..task.tensors import saved_tensors
from .compute import Compute
from .queries import Queries
from .replica import Write
from .stop import Stop
from .trainer import Trainer


class TaskReplica:
    """Runs one peer's trainer on the compute thread. A work's begin and its local steps are handed over in one call,
    because a thread switch costs more than a small step."""

    works_on = False

    def __init__(self, trainer: Trainer, compute: Compute) -> None:
        self._trainer, self._compute, self._queries = trainer, compute, Queries(trainer)
        self.steps_made = 0

    @property
    def at(self) -> str:
        return f"in {self._trainer.at}, step {self._trainer.steps + 1}"

    @property
    def steps_taken(self) -> int:
        return self._trainer.steps_in_round

    def set_data_shard(self, data_shard: int, data_shards: int) -> None:
        self._trainer.set_data_shard(data_shard, data_shards)

    def note(self, record: ExchangeRecord) -> None:
        self._trainer.hooks.note(record)

    async def do(self, work: Work, stop: Stop) -> Update | None:
        job = work.job
        if isinstance(job, Query):
            return await self._compute.run(lambda: self._queries.sums(work.begin, job), steps=1)
        if isinstance(job, Foresee):
            return await self._compute.run(lambda: self._trainer.foresee(job.count))
        steps = job.count if isinstance(job, Steps) else 0
        return await self._compute.run(lambda: self._do(work, stop), steps=steps)

    def _do(self, work: Work, stop: Stop) -> Update | None:
        before = self._trainer.steps
        try:
            return self._trainer.do(work, lambda: stop.flag)
        finally:
            self.steps_made += self._trainer.steps - before

    async def end_round(self, position: Position) -> None:
        await self._compute.run(lambda: self._trainer.end_round(position.begin))

    async def save(self, position: Position, write: Write | None, *, failed: bool) -> None:
        await self._compute.run(lambda: self._trainer.save(position, write, failed=failed))

    async def write_model(self, vector: Tensor, write: Write) -> None:
        def written() -> None:
            with self._trainer.holding(vector):
                write(Snapshot(saved_tensors(self._trainer.model), {}))

        await self._compute.run(written)

    async def rehearse(self, stalls: Stalls) -> Mapping[str, float]:
        """Try the task's functions once before training, so that a faulty one ends the run now and not after the first
        rounds. The model and the training are not changed. `stalls`: the peer's; it reports this work if it takes very
        long. Returns the metrics of evaluate(), empty if the task has none. Raises TaskError, EvaluationFailed and the
        errors of the functions."""
        with stalls.at_work(EVALUATION):
            return await self._compute.run(self._trainer.rehearse)
