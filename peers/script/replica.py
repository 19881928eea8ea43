"""A user's own training loop as a replica. A hook on the script's optimizer counts local steps.

Two threads meet here. The training loop (`training.loop`) runs on the event loop's thread and puts works into a queue.
The script's thread takes a work from the queue inside the optimizer's hook, once it has answered the work before.
Works therefore begin and end on the script's thread, and the model never changes while the script's own code runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from queue import SimpleQueue

import torch
from torch import Tensor, nn

from ...protocols.conversation import Position
from ...protocols.filling import Filling
from ...protocols.work import Begin, Gradient, Steps, StepWith, Update, Work
from ..records.records import ExchangeRecord
from ..task.facts import Facts
from ..task.model_copy import ModelCopy
from ..task.tensors import check_values
from ..training.replica import Write
from ..training.stop import Stop
from .reports import Losses


@dataclass(frozen=True, slots=True)
class _Asked:
    """An entry of the queue: a work, or a begin to apply. `answer`: future of the event loop that gets the update."""

    work: Work | Begin
    answer: asyncio.Future[Update | None]


class ScriptReplica:
    """One script's model and optimizer as a replica (`training.replica`). `gradients`: peers average the gradients in
    place of the model. The methods from `set_data_shard` to `end` belong to the event loop's thread, the others to the
    script's."""

    steps_taken = 0
    works_on = True

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, losses: Losses, *, gradients: bool, inner: str
    ) -> None:
        """`losses`: where the script reports its losses; `inner` ("kept", "reset" or "averaged"): the treatment of the
        optimizer's own state at an average. Raises ValueError for a model or optimizer that cannot be averaged."""
        check_values(model)
        self.losses = losses
        self.steps = 0
        """Local steps since the round began."""
        self.steps_made = 0
        self._gradients = gradients
        self._copy = ModelCopy(model, optimizer, inner, gradients=gradients)
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._asked: _Asked | None = None
        self._job = Steps(0)
        self._halfway: Tensor | None = None
        self._mean: Tensor | None = None
        self._final = False

    @property
    def at(self) -> str:
        return "in the script's own loop"

    @property
    def period(self) -> int:
        """Local steps of the present round; 1 where gradients are averaged; 0 before the first work."""
        return 1 if self._gradients and self._asked is not None else self._job.total

    def facts(self) -> Facts:
        """The properties of this replica that its peer needs before it joins, with the model's present values. Raises
        Diverged when one of these is not finite."""
        facts = self._copy.facts(self._copy.bring(), "gradients" if self._gradients else "steps")
        return replace(facts, source="script")

    # On the event loop's thread

    def set_data_shard(self, data_shard: int, data_shards: int) -> None:
        """Do nothing: the script itself reads `Run.part` and chooses its data by it."""

    def note(self, record: ExchangeRecord) -> None:
        """Do nothing: a script reads its records by `Run.history`."""

    async def do(self, work: Work, stop: Stop) -> Update | None:
        return await stop.unless(lambda: self._ask(work))

    async def write_model(self, vector: Tensor, write: Write) -> None:
        """Do nothing: a script evaluates its own models."""

    async def end_round(self, position: Position) -> None:
        """Do nothing: the begin is applied with the next work, or by `save` if the script is leaving, and a script has
        no hooks."""

    async def save(self, position: Position, write: Write | None, *, failed: bool) -> None:
        """Have the script's thread, in `wait`, apply the begin of `position`, if the script is leaving, the training
        has not `failed`, and no exchange is under way; else do nothing. Nothing is written: a script saves its own
        checkpoints."""
        if self._final and not failed and not isinstance(position.begin, Update):
            await self._ask(position.begin)

    async def _ask(self, work: Work | Begin) -> Update | None:
        answer: asyncio.Future[Update | None] = asyncio.get_running_loop().create_future()
        self._queue.put(_Asked(work, answer))
        return await answer

    def end(self) -> None:
        """Tell the script's thread that there are no more works, so that `wait` returns."""
        self._queue.put(None)

    # On the script's thread

    def wait(self) -> bool:
        """Wait for a work that needs steps or a gradient of the script, and begin it; returns True. Works without steps
        are done here. Returns False when there are no more works. Raises ValueError for a job that a script cannot do,
        and the errors of `ModelCopy.begin`, `prepare` and `bring`."""
        while (asked := self._queue.get()) is not None:
            if isinstance(asked.work, Work):
                if self._begin(asked.work):
                    self._asked = asked
                    return True
                self._answer(asked, self._update())
            else:
                self._go_on_from(asked.work)
                self._answer(asked, None)
        return False

    def _begin(self, work: Work) -> bool:
        self._go_on_from(work.begin)
        job = work.job
        if isinstance(job, Gradient):
            return not self._final
        if not isinstance(job, Steps):
            raise ValueError(f"a script's peers take local steps; they cannot do {type(job).__name__}")
        self._job = job
        if job.taken == 0:
            self._begin_round()
        self._copy.prepare(job)
        return job.count > 0

    def _go_on_from(self, begin: Begin) -> None:
        if isinstance(begin, StepWith):
            self._mean = begin.gradient
        elif self._copy.begin(begin):
            self._begin_round()

    def _begin_round(self) -> None:
        self.steps, self._halfway = 0, None
        self.losses.begin()

    def before_step(self) -> None:
        """Apply the work's correction to the gradients, if it has one. Called between backward and the optimizer's
        step. Raises ValueError when the script has changed the model or optimizer in a way that the run cannot
        follow."""
        self._copy.before_step()

    def count(self) -> None:
        """Count a local step. Called after each step of the optimizer."""
        self.steps, self.steps_made = self.steps + 1, self.steps_made + 1

    def stepped(self) -> bool:
        """Apply the work's correction to the model, if it has one, after a local step that was counted, and bring the
        update if the step was the work's last one. Returns True when the update was brought; the script's thread must
        then call `wait`. Raises Diverged when the model that it is to bring is not finite."""
        self._copy.after_step()
        if self._job.halfway and self.steps - self._job.taken == self._job.count // 2:
            self._halfway = self._copy.vector
        if self._asked is None or self.steps < self._job.taken + self._job.count:
            return False
        self._bring(self._update())
        return True

    def leave(self) -> None:
        """Bring the steps of the present round as the update of the work under way, marked as the last one (`final`),
        because the script takes no more; where gradients are averaged, an empty vector. If no work is under way, only
        note that. The script's thread must then call `wait`."""
        self._final = True
        if self._asked is not None:
            self._bring(self._update())

    def bring_gradient(self, filling: Filling, weight: float) -> None:
        """Bring the conversation the update of a gradient that backward has begun to compute, as the answer to the work
        under way; `filling` tells when each of its buckets is complete. `weight`: number of samples in the batch. The
        update carries the losses that were reported since the last one."""
        rate, loss = self._copy.learning_rate, self.losses.so_far()
        self.losses.begin()
        self._bring(Update(vector=filling.vector, weight=weight, loss=loss, learning_rate=rate, filling=filling))

    def take_mean(self) -> Tensor | None:
        """Take the mean gradient [n] with which the last work began; None: there is no other peer to average with, or
        it was taken before."""
        mean, self._mean = self._mean, None
        return mean

    def _update(self) -> Update:
        if self._gradients:
            return Update(vector=torch.zeros(0), final=True)
        return self._copy.update(
            weight=float(self.steps),
            loss=self.losses.so_far(),
            steps=self.steps,
            halfway=self._halfway,
            final=self._final,
        )

    def _bring(self, update: Update) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None
        self._answer(asked, update)

    @staticmethod
    def _answer(asked: _Asked, update: Update | None) -> None:
        def answer() -> None:
            if not asked.answer.done():
                asked.answer.set_result(update)

        asked.answer.get_loop().call_soon_threadsafe(answer)
