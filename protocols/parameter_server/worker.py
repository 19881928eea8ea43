"""A worker of the parameter server as a conversation.

    next                         bring
    Foresee(period)              for a model with tables: the rows that the next steps need, for the next pull
    pull; Load, Steps(period)    push what the algorithm makes of the steps; the next pull may wait for the clocks
    Evaluate(pulled)             the first of the workers evaluates now and then, and each the last model

A worker's clock is the number of its turns, each of a pull, local steps and a push. A worker waits for servers and for
other workers' clocks, never for a decision on a view. Its last pull waits until no other worker takes more steps, so
that all end with the same model. A newcomer, and a worker without which the others have gone on, takes part from the
slowest other worker's clock on, and begins from the values that it pulls then. Workers of a resumed run go on from
their own clocks, as far as the consistency lets these differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...aggregation.codecs.codec import seed_of
from ..clock import RunClock
from ..conversation import Came, End, Outcome, Position
from ..members.presence import Presence
from ..testpoints import Became, witness
from ..transport import PeerId
from ..work import Begin, Evaluate, Foresee, Job, Keep, Load, Steps, Update, Work
from .client import Client
from .evaluations import is_evaluated
from .events import Trains
from .filtering import Residual
from .messages import FOREVER
from .options import Options
from .reading import Values
from .shares import Pushes
from .state import State
from .tenure import workers_of

_UNBOUNDED_PUSHES = 4
"""The most pushes that a worker has under way if its consistency sets no limit. Each takes the memory of one vector."""


class Worker:
    """One worker, as a conversation: it pulls the model, has its replica take local steps, and pushes what the
    algorithm makes of them. `state`: the state from which it begins."""

    needs = frozenset({"steps"})

    def __init__(self, client: Client, presence: Presence, clock: RunClock, options: Options, state: State) -> None:
        self._client, self._presence, self._clock, self._options = client, presence, clock, options
        self.state = state
        self._begin: Begin = Keep()
        self._job: Job = Steps(0)
        self._pulled: Values | None = None
        """The values from which the present turn began, or the last turn that pulled; None: none were pulled."""
        self._waited: tuple[float, PeerId] = (0.0, "")
        """Seconds that the present turn's pull took, and the worker for whose push it waited last; "": for none."""
        self._returns = 0
        self._done = False
        """Whether this worker has its last model."""

    @property
    def bytes_shared(self) -> int:
        return self._client.bytes_shared

    @property
    def version(self) -> int:
        return self.state.clock

    # Coming and going

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        resumed = self._clock.before_s > 0.0
        late = await self._presence.enter(contact)
        self._returns = self._presence.returns
        self.state.own &= not late
        saved = self.state.clock
        if await self._enlist(resumed=resumed and not late) > saved:  # some of what waited has been pushed since
            self.state.residual = Residual()
        self._clock.start()
        return "resumed" if resumed else "joined" if late else "started"

    async def _enlist(self, *, resumed: bool = False) -> int:
        """Have the servers count this worker, from a later clock than its own if the others are ahead of it. `resumed`:
        it goes on with the others from their checkpoints. Returns its clock with the servers before."""
        clock, before = await self._client.enlist(self.state.clock, resumed=resumed)
        if clock > self.state.clock:
            self.state.step += (clock - self.state.clock) * self._options.algorithm.period
            self.state.clock = clock
        self._pulled = None
        return before

    async def finish(self) -> End | None:
        await self._presence.finish()
        return End.by_steps(self.state.step, self._options.steps)

    async def leave(self, why: str) -> None:
        await self._presence.leave(why)

    async def settle(self) -> Sequence[Outcome]:
        outcome, self.state.outcome = self.state.outcome, None
        return [] if outcome is None else [outcome]

    def position(self) -> Position:
        state = self.state
        numbers: dict[str, Any] = {"parameter_server": [state.clock, state.step]}
        tensors = {"parameter_server/model": state.model}
        tensors |= state.residual.tensors()
        last = self._begin.vector if self._done and isinstance(self._begin, Load) else state.model
        return Position(state.clock, last, tensors, numbers, self._begin)

    def close(self) -> None:
        self._client.close()

    # Turns

    async def next(self) -> Work | None:
        state, options = self.state, self._options
        if self._presence.returns != self._returns and not self._done:
            await self._come_back()
        if self._is_over:
            return await self._last_work()
        if state.outcome is not None:
            return self._evaluation(await self._load_whole(state.clock))
        if options.tables and state.needed is None:
            self._job = Foresee(self._left())
            return Work(Keep(), self._job)
        algorithm, first = options.algorithm, self._pulled is None
        if first or self._pulls_next:
            self._pulled = await self._first_pull() if first else await self._pull()
            if self._is_over:
                return await self._last_work()
            own = state.model if state.own else None
            state.read = self._pulled.updates
            self._begin = self._pulled.with_rows(algorithm.begin(self._pulled.vector, own))
        else:
            self._begin = Load(state.model) if algorithm.meets else Keep()
        if isinstance(self._begin, Load):
            state.model = self._begin.vector
        witness(Trains(state.clock, state.model))
        self._job = Steps(self._left(), total=self._left(), step=state.step)
        return Work(self._begin, self._job)

    def _evaluation(self, whole: Load) -> Work:
        self._job = Evaluate(whole.vector)
        return Work(whole, self._job)

    @property
    def _pulls_next(self) -> bool:
        """Whether the next turn begins with a pull."""
        algorithm = self._options.algorithm
        return not algorithm.meets and self.state.clock % algorithm.pulls_every == 0

    def _left(self) -> int:
        """Local steps of the next turn."""
        period, steps = self._options.algorithm.period, self._options.steps
        return period if steps is None else min(period, steps - self.state.step)

    async def _load_whole(self, clock: int) -> Load:
        """Begin from the whole model as a read at `clock` finds it, all rows of its tables included, and return it. A
        worker with a model of its own keeps that, and goes on from it unless it has ended. The turn that is to be
        evaluated has waited for that."""
        state, pulled = self.state, await self._pull(self._options.every_row(), clock, exact=True)
        whole = Load(pulled.vector, rows=pulled.rows)
        own = self._options.algorithm.meets and state.own
        self._begin = Load(state.model) if own and clock < FOREVER else whole
        state.model = state.model if own else whole.vector
        if (turn := state.outcome) is not None:
            waited_s, late = self._waited
            state.outcome = replace(turn, wait_s=turn.wait_s + waited_s, waited_for=late or turn.waited_for)
        return whole

    async def _first_pull(self) -> Values:
        """The values from which this worker begins. If the algorithm has a warm start and this is not the first worker,
        wait for the end of the warm start."""
        while True:
            pulled, view = await self._pull(), await self._presence.view()
            first = workers_of(view)[0] == self._presence.me
            if first or min(pulled.updates) >= self._options.algorithm.warm_start:
                return pulled
            await self._presence.pause()

    async def _last_work(self) -> Work | None:
        """End this worker's steps: none waits for its clock any more. Its last model is the one that it pulls now, when
        all others have pushed their last. Returns its evaluation; None: it is done, or this replica cannot evaluate."""
        if self._done:
            return None
        await self._client.enlist(FOREVER)
        whole, self._done = await self._load_whole(FOREVER), True
        return self._evaluation(whole) if self._options.evaluate_every else None

    async def _come_back(self) -> None:
        """The others have gone on without this worker: wait until its pushes are in the model, and take part anew."""
        await self._client.at_most(0)
        self._returns = self._presence.returns
        await self._enlist()

    async def _pull(
        self, wanted: Mapping[str, Tensor] | None = None, clock: int | None = None, *, exact: bool = False
    ) -> Values:
        """Pull the vector, and the rows `wanted`; None: those that the next steps need. `clock`, `exact`: as for
        `Client.pull`; without a clock it is this worker's."""
        began_s, at = self._now(), self.state.clock if clock is None else clock
        pulled = await self._client.pull(at, (self.state.needed or {}) if wanted is None else wanted, exact=exact)
        self._waited = self._now() - began_s, pulled.late
        if pulled.clock > self.state.clock and pulled.clock < FOREVER:  # the others have gone on without a push of it
            self.state.step += (pulled.clock - self.state.clock) * self._options.algorithm.period
            self.state.clock = pulled.clock
        return pulled

    @property
    def _is_over(self) -> bool:
        return self.state.over or (self._options.steps is not None and self.state.step >= self._options.steps)

    async def bring(self, update: Update) -> Outcome | None:
        state, options = self.state, self._options
        if isinstance(self._job, Foresee):
            state.needed = update.needed
            return None
        if isinstance(self._job, Evaluate):
            outcome, state.outcome = state.outcome, None
            return None if outcome is None else replace(outcome, metrics=update.metrics, evaluate_s=update.seconds)
        if update.final and not update.steps:
            self._push_rest()
            state.over = True
            await self._client.at_most(0)
            return None
        assert self._pulled is not None
        state.needed, state.over = None, update.final
        begun = state.model
        if options.algorithm.meets:
            self._pulled = await self._pull()
            state.read = self._pulled.updates
        began_s = self._now()
        change = options.algorithm.change(self._pulled.vector, begun, update.vector)
        moved = Pushes(change, {name: rows.minus(self._pulled.rows[name]) for name, rows in update.rows.items()})
        state.model = options.algorithm.after(self._pulled.vector, update.vector, change)
        state.clock, state.step, state.own = state.clock + 1, state.step + update.steps, True
        if options.algorithm.meets:
            witness(Became(state.clock, state.model))
        pushed, held = self._filtered(options.pushed(moved, update.learning_rate), update.learning_rate)
        own = options.consistency.own
        reads = own == 0 and not self._is_over and self._pulls_next and not options.tables
        pushes_s, sparse = self._now(), options.filters is not None  # others may go on as soon as the push has gone
        self._client.push(state.clock, pushed, state.read, last=self._is_over, reads=reads, sparse=sparse)
        (wait_s, late), self._waited = self._waited, (0.0, "")  # the next turn may begin without a pull
        outcome = Outcome(
            version=state.clock,
            step=state.step,
            loss=update.loss,
            members=len(workers_of(self._presence.present)),
            steps=update.steps,
            compute_s=update.seconds,
            wait_s=wait_s,
            waited_for=late or None,
            details=options.details(moved, held),
            model_bytes=moved.nbytes,
            at_s=pushes_s,
            last=self._is_over,
        )
        try:
            await self._client.at_most(0 if self._is_over else _UNBOUNDED_PUSHES if own is None else own + 1)
            view = await self._presence.view()
        except asyncio.CancelledError:
            state.outcome = outcome  # this worker is stopped: the turn counts, and its record is written
            raise
        received, members = self._client.received(), len(workers_of(view))
        outcome = replace(outcome, members=members, transfer_s=self._now() - began_s, received_from=received)
        if not await is_evaluated(outcome, options.evaluate_every, self._presence):
            return outcome
        state.outcome = outcome
        return None

    def _push_rest(self) -> None:
        """Push what the filters have kept back, after a last step that was not known to be the last one. Also if that
        is nothing: a step has the rests of all workers, and its mean is over those that push."""
        state, filters, pulled = self.state, self._options.filters, self._pulled
        if filters is None or pulled is None or self._is_over:
            return
        state.clock += 1
        none = Pushes(torch.zeros_like(state.model), {})
        rest, _ = filters.apply(none, pulled, state.residual, 1.0, 0, seq=state.clock, last=True)
        self._client.push(state.clock, rest, state.read, last=True, rest=True, sparse=True)

    def _filtered(self, pushed: Pushes, learning_rate: float) -> tuple[Pushes, int]:
        """The push to send, after the filters, and the number of elements that they hold back."""
        options, state = self._options, self.state
        if options.filters is None:
            return pushed, 0
        assert self._pulled is not None
        rate = learning_rate if options.function.takes == "gradient" else 1.0
        seq, seed, last = state.clock, seed_of(self._presence.me, state.clock), self._is_over
        return options.filters.apply(pushed, self._pulled, state.residual, rate, seed, seq=seq, last=last)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
