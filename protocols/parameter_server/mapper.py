"""A worker of an algorithm of map and reduce as a conversation.

    next                                  bring
    pull the model of the step;
    Load, Query(p) for each partition p   push its sums for p
    pull again: wait for all partitions   the record of the step; the first worker evaluates now and then

A worker maps the partitions that are its own in the present view (`partitions.mappers`), and pushes the sums for each
in the partition's name. While it waits for the sums of all, a new view may give it partitions of a worker that is gone;
then it maps these too. So no partition is missing in a step, and none counts twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from ..clock import RunClock
from ..conversation import Came, End, Outcome, Position
from ..members.presence import Presence
from ..members.view import View
from ..transport import PeerId
from ..work import Begin, Evaluate, Job, Keep, Load, Query, Steps, Update, Work
from .algorithms.algorithm import MapReduce
from .client import Client
from .evaluations import is_evaluated
from .partitions import mappers
from .portions import Taker
from .reading import Values
from .shares import Pushes
from .tenure import workers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """The options of one worker of map and reduce. `algorithm`: the run's; `partitions`: the number of partitions of
    the data; `steps`: steps of the run; `evaluate_every`: steps between two evaluations, 0: the replica cannot
    evaluate."""

    algorithm: MapReduce
    partitions: int
    steps: int
    evaluate_every: int
    taker: Taker | None
    """The means to ask a coordinator for a partition; None: each worker has partitions of its own."""


@dataclass(slots=True)
class _Step:
    """This worker's part of the present step. `mapped`: the partitions; `began_s`: when it had mapped the last of them;
    `waits`: how often it has waited long for the end of the step."""

    mapped: set[int] = field(default_factory=set)
    waits: int = 0
    loss: float = 0.0
    weight: float = 0.0
    compute_s: float = 0.0
    began_s: float = 0.0


class Mapper:
    """One worker of an algorithm of map and reduce, as a conversation: pulls the model, has its replica map its
    partitions, and pushes the sums. `model` [n]: the model with which it begins."""

    needs = frozenset[str]()

    def __init__(self, client: Client, presence: Presence, clock: RunClock, options: Mapping, model: Tensor) -> None:
        self._client, self._presence, self._clock, self._options = client, presence, clock, options
        self._model, self._done = model, 0
        """The model after `_done` steps."""
        self._begin: Begin = Keep()
        self._job: Job = Steps(0)
        self._pulled: Values | None = None
        self._given: list[int] = []
        """The partitions that this worker is to map now."""
        self._step = _Step()
        self._outcome: Outcome | None = None
        """The outcome of a step that is over and not recorded yet."""

    @property
    def bytes_shared(self) -> int:
        return self._client.bytes_shared

    @property
    def version(self) -> int:
        return self._done

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        resumed = self._clock.before_s > 0.0
        late = await self._presence.enter(contact)
        self._clock.start()
        return "resumed" if resumed else "joined" if late else "started"

    async def finish(self) -> End | None:
        await self._presence.finish()
        over = self._done >= self._options.steps
        return End("steps", f"all peers together have taken {self._done:,} steps") if over else None

    async def leave(self, why: str) -> None:
        await self._presence.leave(why)

    async def settle(self) -> Sequence[Outcome]:
        outcome, self._outcome = self._outcome, None
        return [] if outcome is None else [outcome]

    def position(self) -> Position:
        return Position(self._done, self._model, {}, {}, self._begin)

    def close(self) -> None:
        self._client.close()

    async def next(self) -> Work | None:
        while True:
            if self._outcome is not None:
                due = await is_evaluated(self._outcome, self._options.evaluate_every, self._presence)
                self._job = Evaluate(self._model) if due else Steps(0)
                return Work(self._begin, self._job)
            if self._pulled is not None and self._done >= self._options.steps:
                await self._client.at_most(0)
                return None
            view = await self._presence.view()
            self._given = []
            await self._presence.during(view, self._begin_run if self._pulled is None else partial(self._look, view))
            if self._given:
                self._job = Query(self._given[0], self._options.partitions, self._options.algorithm.of_loss)
                return Work(self._begin, self._job)

    async def _look(self, view: View) -> None:
        """Find a partition to map in the present step, or else end the step."""
        if self._options.taker is None:
            of = mappers(view, self._options.partitions)
            own = [one for one, worker in enumerate(of) if worker == self._presence.me]
            self._given = [one for one in own if one not in self._step.mapped]
        else:
            await self._ask(self._options.taker, view)
        if not self._given:
            await self._end_step(view)

    async def _ask(self, taker: Taker, view: View, *, again: bool = False) -> None:
        """Ask the coordinator for a portion to map in the present step."""
        taken = await taker.take(view, self._done + 1, again=again)
        self._given = [taken] if taken >= 0 else []

    async def _begin_run(self) -> None:
        """Begin from the values that the servers have. They may be those of a step in the midst of a run."""
        self._take(await self._values(0))

    async def _values(self, clock: int) -> Values:
        """The values after `clock` steps or more, as many in each range if a coordinator orders what they become."""
        while True:
            pulled = await self._client.pull(clock)
            if not self._options.algorithm.coordinated or min(pulled.clocks) == pulled.clock:
                return pulled
            clock = pulled.clock

    async def _end_step(self, view: View) -> None:
        """Wait for the sums of all partitions in the present step, and begin the next one. Where that takes long, map a
        portion of the others instead: its worker may hang, or have pushed it to some ranges only."""
        began_s, step = self._now(), self._step
        pulled = await self._last_values(view)
        if pulled is None:
            return
        self._take(pulled)
        self._outcome = Outcome(
            version=self._done,
            step=self._done,
            loss=step.loss / step.weight if step.weight else float("nan"),
            members=len(workers_of(view)),
            steps=len(step.mapped),
            compute_s=step.compute_s,
            wait_s=self._now() - (step.began_s or began_s),
            waited_for=pulled.late or None,
            received_from=self._client.received(),
            model_bytes=self._model.nbytes,
            last=self._done >= self._options.steps,
        )

    async def _last_values(self, view: View) -> Values | None:
        """The values after the present step; None: it takes long, and there is a portion to map. Each such portion is
        waited for longer, because all may only be slow to arrive, and one more on a full link makes them slower."""
        taker, step = self._options.taker, self._step
        if taker is None:
            return await self._values(self._done + 1)
        pulling = asyncio.create_task(self._values(self._done + 1), name="pull")
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(taker.patience_s * (1 + step.waits) + step.compute_s):
                        return await asyncio.shield(pulling)
                step.waits += 1
                await self._ask(taker, view, again=True)
                if self._given:
                    return None
        finally:
            pulling.cancel()

    def _take(self, pulled: Values) -> None:
        """Go on from the `pulled` values, which have had the updates of that many steps."""
        done = min(pulled.clocks)
        self._client.give_up(done)
        self._model = self._options.algorithm.model(pulled.vector, self._model, done)
        self._begin, self._pulled, self._done, self._step = Load(self._model), pulled, done, _Step()

    async def bring(self, update: Update) -> Outcome | None:
        job, step = self._job, self._step
        if not isinstance(job, Query):
            outcome, self._outcome = self._outcome, None
            assert outcome is not None
            evaluated = isinstance(job, Evaluate)
            return replace(outcome, metrics=update.metrics, evaluate_s=update.seconds) if evaluated else outcome
        assert self._pulled is not None
        pushed = Pushes(self._options.algorithm.push(update.vector, self._model.numel()), {})
        self._client.push(self._done + 1, pushed, self._pulled.updates, of=job.partition + 1)
        step.mapped.add(job.partition)
        step.loss, step.weight = step.loss + update.loss * update.weight, step.weight + update.weight
        step.compute_s, step.began_s = step.compute_s + update.seconds, self._now()
        return None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
