"""A worker of an algorithm in shared memory as a conversation.

    next                                  bring
    Share(memory), Steps(period)          the record of the turn
    Evaluate(copy of the memory)          the first of the workers evaluates now and then, and each the last model

A worker's clock is the number of its turns. It waits for no other worker before its last step; then it waits until all
have taken theirs, so that all end with the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ..clock import RunClock
from ..conversation import Came, End, Outcome, Position
from ..members.presence import Presence
from ..transport import PeerId
from ..work import Begin, Evaluate, Job, Keep, Steps, Update, Work
from .algorithms.algorithm import Shared
from .evaluations import is_evaluated
from .lending import Lending, Progress
from .tenure import workers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The options of a worker in shared memory. `algorithm`: the run's; `steps`: local steps of the run;
    `evaluate_every`: the worker's turns between two evaluations, 0: the replica cannot evaluate."""

    algorithm: Shared
    steps: int
    evaluate_every: int


class Sharer:
    """One worker of an algorithm in shared memory, as a conversation: its replica takes local steps in the memory that
    all workers share. `begun`: this worker's clock and local steps when it begins."""

    needs = frozenset({"steps"})
    bytes_shared = 0

    def __init__(
        self, lending: Lending, presence: Presence, clock: RunClock, options: Sharing, begun: Progress
    ) -> None:
        self._lending, self._presence, self._clock, self._options = lending, presence, clock, options
        self.progress = begun
        self._begin: Begin = Keep()
        self._job: Job = Steps(0)
        self._returns = 0
        self._outcome: Outcome | None = None
        """The outcome of a turn after which the model is still to be evaluated; None: there is none."""
        self._last: Tensor | None = None
        """The model [n] when all workers have taken their last steps; None: they have not."""

    @property
    def version(self) -> int:
        return self.progress[0]

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        resumed = self._clock.before_s > 0.0
        late = await self._presence.enter(contact)
        await self._go_on_in_memory(late=late)
        self._clock.start()
        return "resumed" if resumed else "joined" if late else "started"

    async def _go_on_in_memory(self, *, late: bool) -> None:
        """Go on in the memory of all. A worker that is `late` counts the steps that the others have taken as taken;
        any other takes all that it has not taken itself."""
        self._returns = self._presence.returns
        memory, theirs = await self._lending.memory()
        self.progress = max(self.progress, theirs) if late else self.progress
        self._begin = self._options.algorithm.share(memory)

    async def next(self) -> Work | None:
        if self._last is not None:
            return None
        if self._presence.returns != self._returns:
            await self._go_on_in_memory(late=True)
        step = self.progress[1]
        if self._outcome is not None:
            self._job = Evaluate(self._lending.vector.clone())
        elif step < self._options.steps:
            count = min(self._options.algorithm.period, self._options.steps - step)
            self._job = Steps(count, total=count, step=step)
        else:
            await self._presence.finish()
            self._last = self._lending.vector.clone()
            if not self._options.evaluate_every:
                return None
            self._job = Evaluate(self._last)
        return Work(self._begin, self._job)

    async def bring(self, update: Update) -> Outcome | None:
        if isinstance(self._job, Evaluate):
            outcome, self._outcome = self._outcome, None
            return None if outcome is None else replace(outcome, metrics=update.metrics, evaluate_s=update.seconds)
        clock, step = self.progress
        self.progress = clock, step = clock + 1, step + update.steps
        outcome = Outcome(
            version=clock,
            step=step,
            loss=update.loss,
            members=len(workers_of(self._presence.present)),
            steps=update.steps,
            compute_s=update.seconds,
            last=step >= self._options.steps,
        )
        if outcome.last or not await is_evaluated(outcome, self._options.evaluate_every, self._presence):
            return outcome
        self._outcome = outcome
        return None

    async def settle(self) -> Sequence[Outcome]:
        outcome, self._outcome = self._outcome, None
        return [] if outcome is None else [outcome]

    async def finish(self) -> End | None:
        await self._presence.finish()
        return End.by_steps(self.progress[1], self._options.steps)

    async def leave(self, why: str) -> None:
        await self._presence.leave(why)

    def position(self) -> Position:
        vector = self._lending.vector
        tensors, numbers = {"parameter_server/model": vector}, {"parameter_server": [*self.progress]}
        return Position(self.version, vector, tensors, numbers, self._begin)

    def close(self) -> None:
        self._lending.close()
