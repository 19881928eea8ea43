"""Gossip as a conversation: local steps, then a mix with the neighbours' models.

    next                       bring
    Load(mix), Steps(period)   publish this peer's model, take those of the neighbours, mix
    Evaluate(mix)              every peer evaluates its own model

A peer takes part as long as it has neighbours, however few: no majority is needed, and each peer ends by itself. The
weight of a lost neighbour in the mix is added to that of this peer's own model. Three kinds of peers take the mean of
their neighbours' newest models as their own: a newcomer, a peer that the others have gone on without, and a peer whose
neighbours are more than 8 rounds ahead. Such a peer also takes over the number of rounds and steps that more than
half of these neighbours have reached, so a single one that claims more moves no peer that has another neighbour. Where
vectors are sent as encoded differences, such a peer takes the newest model of one neighbour only (`estimates`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...aggregation.vector import norm_of
from ..clock import RunClock
from ..collectives.bound import Bound
from ..conversation import Came, End, Outcome, Position
from ..members.errors import Expelled, NoQuorum
from ..members.port import RunMembers, Way
from ..testpoints import Became, sometimes, witness, witnessed
from ..transport import PeerId
from ..work import Begin, Evaluate, Job, Keep, Load, Steps, Update, Work
from .algorithms.algorithm import Algorithm, Held
from .messages import NEWEST, Published
from .mixing import CaughtUp, Mixed, Own, Summands, distance, mix
from .neighbourhood import Neighbourhood
from .periods import Periods
from .state import State, saved
from .taken import NOTHING, Taken

_FAR = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a gossip. `periods` decides the number of local steps between two mixes. `parameters`: this many
    elements at the start of the model are parameters, which local steps change. `steps`: local steps of the run; None:
    a script decides when it ends. `evaluate_every`: rounds between two evaluations; 0: the replica cannot evaluate."""

    periods: Periods
    parameters: int
    steps: int | None
    evaluate_every: int


class Gossip:
    """One peer's conversation of gossip. `state`: the state from which it begins, new or from a checkpoint."""

    needs = frozenset({"steps"})

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        membership: RunMembers,
        way: Way,
        clock: RunClock,
        algorithm: Algorithm,
        options: Options,
        state: State,
    ) -> None:
        self._neighbours, self._members, self._way = neighbourhood, membership, way
        self._clock, self._algorithm, self._options, self.state = clock, algorithm, options, state
        self._begin: Begin = Load(state.held.model)
        self._job: Job = Steps(0)
        self._taken = 0
        """Local steps of the next round that a resumed replica has taken already. No record has counted them yet."""
        self._over = False
        self._outcome: Outcome | None = None
        """The outcome of the round whose model is being evaluated."""

    @property
    def version(self) -> int:
        return self.state.round

    @property
    def bytes_shared(self) -> int:
        return self._neighbours.bytes_shared

    # Coming and going

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        resumed = self._clock.before_s > 0.0
        if contact is None:
            self._members.found()
        else:
            await self._way.enter(contact)
        late = self._members.view.started
        await self._inside()
        late = late and await self._catch_up(_FAR if resumed else 1)
        if resumed and not late:
            self._begin, self._taken = Keep(), steps
        self._clock.start()
        return "resumed" if resumed else "joined" if late else "started"

    async def _inside(self) -> bool:
        """Wait until this peer is a member of a run that has begun, and join again if the others went on without it.
        Returns whether it had to."""
        members, again = self._members, False

        def inside() -> bool:
            return members.view.started and members.me.id in members.view.ids

        if inside():
            with contextlib.suppress(Expelled):
                await members.until(inside)
                return again
        try:
            async with asyncio.timeout(members.terms.give_up_after_s):
                while True:
                    try:
                        await members.until(inside)
                        return again
                    except Expelled as expelled:
                        await self._way.come_back(expelled)
                        again = True
        except TimeoutError:
            raise NoQuorum(f"this peer has found nobody for {members.terms.give_up_after_s:g} s") from None

    async def finish(self) -> End | None:
        while True:
            try:
                await self._members.finish()
                return End.by_steps(self.state.step, self._options.steps)
            except Expelled as expelled:
                await self._way.come_back(expelled)

    async def leave(self, why: str) -> None:
        await self._members.leave(why)

    async def settle(self) -> Sequence[Outcome]:
        outcome, self._outcome = self._outcome, None
        return [] if outcome is None else [outcome]

    def position(self) -> Position:
        state = self.state
        numbers = [state.round, state.step, state.period.to_plain()]
        return Position(state.round, state.held.model, saved(state), {"gossip": numbers}, self._begin, own_model=True)

    def close(self) -> None:
        self._neighbours.close()

    # Works

    async def next(self) -> Work | None:
        if self._outcome is not None:
            self._job = Evaluate(self.state.held.model)
        elif self._is_over:
            return None
        else:
            left = self.state.period.period
            if self._options.steps is not None:
                left = min(left, self._options.steps - self.state.step)
            step, correction = self.state.step + self._taken, self._algorithm.correction(self.state.held)
            if not self._taken:
                self._options.periods.begin(self.state.held.model)
            watched = self._options.periods.watched
            self._job = Steps(
                left - self._taken, self._taken, left, step, halfway=watched, correction=correction, only_read=True
            )
        return Work(self._begin, self._job)

    @property
    def _is_over(self) -> bool:
        return self._over or (self._options.steps is not None and self.state.step >= self._options.steps)

    async def bring(self, update: Update) -> Outcome | None:
        if isinstance(self._job, Evaluate):
            outcome, self._outcome = self._outcome, None
            return None if outcome is None else replace(outcome, metrics=update.metrics, evaluate_s=update.seconds)
        self._taken = 0
        self._over = update.final
        began_s = self._now()
        came, met = await self._inside(), self._members.neighbours.have_returned()
        if (came or met) and await self._catch_up(1 if came else _FAR):
            return self._evaluated_first(self._outcome_of(update, NOTHING, began_s, caught_up=True))
        if came:
            self.state = replace(self.state, held=self._anew(self.state.held.model, {}))
        held, round, step = self.state.held, self.state.round + 1, self.state.step + update.steps
        own = self._options.periods.told(update)
        mine = await self._neighbours.publish(Published(round, step, self._algorithm.give(held, update), own))
        taken = await self._neighbours.take(round, round)
        if self._far_behind(taken) and await self._go_on_from(taken, 0):
            sometimes("a peer goes on from far newer models")
            return self._evaluated_first(self._outcome_of(update, taken, began_s, caught_up=True))
        taken, mix = await self._neighbours.mix(mine, taken, self._algorithm.rest(held))
        self._witness(round, given := mine.vector, taken, mixed := mix.vector)
        mixed = self._neighbours.completed(mixed)
        of = [own, *(one.told for one in taken.vectors.values() if not one.last)]
        period = self._options.periods.decided(self.state.period, of, self._now() - began_s)
        await self._becomes(State(round, step, self._algorithm.mix(held, update, given, mixed), period))
        if not self._is_over:
            self._neighbours.ask_ahead(round + 1)
        is_mix = given is update.vector and self.state.held.model is mix.vector
        moved = mix.moved if is_mix else None
        return self._evaluated_first(self._outcome_of(update, taken, began_s, moved=moved))

    async def _becomes(self, state: State) -> None:
        self.state, self._begin = state, Load(state.held.model)
        witness(Became(state.round, state.held.model))
        if self._is_over:
            rest = self._algorithm.rest(state.held)
            await self._neighbours.publish(Published(state.round + 1, state.step, rest, last=True))

    def _evaluated_first(self, outcome: Outcome) -> Outcome | None:
        """Returns `outcome`, unless its model is to be evaluated first."""
        every = self._options.evaluate_every
        if not every or not (outcome.last or outcome.version % every == 0):
            return outcome
        self._outcome = outcome
        return None

    def _outcome_of(
        self,
        update: Update,
        taken: Taken,
        began_s: float,
        *,
        caught_up: bool = False,
        moved: float | None = None,
    ) -> Outcome:
        spent_s, state, model = self._now() - began_s, self.state, self.state.held.model
        if moved is None:
            moved = distance(model, update.vector) / max(norm_of(update.vector), torch.finfo(torch.float32).tiny)
        return Outcome(
            version=state.round,
            step=state.step,
            loss=update.loss,
            members=1 + len(taken.vectors),
            steps=update.steps,
            compute_s=update.seconds,
            wait_s=taken.waited_s,
            transfer_s=max(0.0, spent_s - taken.waited_s),
            waited_for=taken.waited_for,
            details={
                "neighbours": len(taken.vectors),
                "moved": moved,
                "period": update.steps,
                "known": len(self._members.view.ids),
            },
            received_from=self._neighbours.received(),
            caught_up=caught_up,
            model_bytes=update.vector.nbytes if taken.vectors else 0,
            last=self._is_over,
        )

    # A peer that is behind

    def _far_behind(self, taken: Taken) -> bool:
        return not self._algorithm.pairs and taken.reached > self.state.round + _FAR

    async def _catch_up(self, rounds: int = 1) -> bool:
        """Go on from the neighbours' newest models. Returns False, and does nothing, unless more than half of them are
        more than so many rounds ahead of this peer."""
        taken = await self._neighbours.take(NEWEST, self.state.round + 1)
        return await self._go_on_from(taken, rounds)

    async def _go_on_from(self, taken: Taken, rounds: int) -> bool:
        if taken.reached <= self.state.round + rounds:
            return False
        held = self.state.held
        good = await self._neighbours.checked(taken, self._algorithm.rest(held))
        if (reached := replace(taken, vectors=good).reached) <= self.state.round + rounds:
            return False
        ahead = {peer: one for peer, one in good.items() if one.round > self.state.round}
        step = max(self.state.step, min(one.step for one in ahead.values() if one.round >= reached))
        models = {peer: self._algorithm.model(held, one.vector) for peer, one in ahead.items()}
        weights, anyhow = dict.fromkeys(ahead, 1.0 / len(ahead)), Bound(math.inf)
        nothing = Own(held.model.new_zeros(1).expand_as(held.model), 0.0)
        of = Summands(nothing, 0.0, models, weights)  # nobody writes to a single model: it needs no copy
        model = models.popitem()[1] if len(models) == 1 else (await mix(of, held.model, anyhow)).vector
        witness(CaughtUp(reached))
        await self._becomes(State(reached, step, self._anew(model, good), self.state.period))
        return True

    def _anew(self, model: Tensor, good: Mapping[PeerId, Published]) -> Held:
        """What this peer holds that goes on from `model` [n] alone, the mean of the `good` vectors of others, or its
        own: the others have given up what else it held."""
        self._neighbours.begin_anew(good)
        return self._algorithm.begin(model, self._options.parameters)

    def _witness(self, round: int, own: Tensor, taken: Taken, mixed: Tensor) -> None:
        if witnessed():  # the algorithm may write to the mixed vector
            rounds = {peer: one.round for peer, one in taken.vectors.items()}
            witness(Mixed(round, own, taken.own, taken.weights, rounds, mixed.clone()))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
