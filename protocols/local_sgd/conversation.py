"""Local SGD as a conversation: the local steps and averages of a round, one work after another.

    next                                    bring
    Load(mean), Steps(period)               average with all; the mean is loaded next
    Load(mean), Steps(site period), ...     average with the site amid a round, with all at its end
    StepWith(mean gradient), Gradient       average the gradients while backward fills them
    Load(mean), Steps(0)                    a latecomer follows the others' rounds until it is in step
    Evaluate(model)                         the coordinator evaluates the model of a round that is due

Overlap (Zhu et al., "Delayed gradient averaging", NeurIPS 2021, arXiv 2105.07999, section 3; Douillard et al.,
"Streaming DiLoCo", arXiv 2501.18512, section 2.3) hides a round behind the next local steps: see `behind`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from ..clock import RunClock
from ..conversation import Came, End, Outcome, Position
from ..members.errors import Expelled, MembershipError
from ..members.membership import Membership
from ..testpoints import witness
from ..transport import PeerId
from ..work import Begin, Evaluate, Gradient, Job, Keep, Load, Steps, StepWith, Update, Work
from . import rounds
from .behind import Behind
from .checkpoint import position_of
from .contributions import Contributions
from .evaluations import Evaluations
from .exit_barrier import Farewell
from .local_sgd import LocalSGD
from .options import Options
from .rounds import Contribution
from .spent import Spent, outcome_of
from .state import State


class LocalSGDConversation:
    """One peer's conversation of local SGD: it gives the replica work, and has `averaging` average the results."""

    def __init__(self, averaging: LocalSGD, clock: RunClock, options: Options, *, resumed: bool = False) -> None:
        """`resumed`: the replica continues from the state of `averaging`."""
        self.averaging = averaging
        self._clock, self._options = clock, options
        self._contributions = Contributions(averaging, options)
        self._farewell = Farewell(averaging)
        self._behind = Behind(averaging.meter, averaging.growth, options.overlap_share, options.parameters)
        self._evaluations = Evaluations(averaging, options.evaluate_every, self._contributions.evaluated)
        self._resumed_from = self.state if resumed else None
        self._begin: Begin = Keep()
        self._job: Job = Steps(0)
        self._taken = 0
        """Local steps taken in the present round so far."""
        self._following = False
        """Whether this peer is late: it follows the others' rounds, without local steps, until it is in step."""
        self._left = False
        """Whether the replica takes no more steps although the run goes on."""
        self._round_began_s = 0.0
        """When the round's local steps began, on the run's clock."""
        self._spent = Spent()

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"gradients"} if self._options.gradients else {"steps"})

    @property
    def membership(self) -> Membership:
        return self.averaging.membership

    @property
    def state(self) -> State:
        """The state that this peer has committed last."""
        return self.averaging.state

    @property
    def version(self) -> int:
        return self.state.round

    @property
    def bytes_shared(self) -> int:
        return self.averaging.bytes_shared

    # Coming and going

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        """Found the run (None), or join it through `contact`; wait until enough peers have gathered, and start the
        clock. `steps`: local steps that the replica has taken since the position it was resumed from. Returns "resumed"
        if the run was resumed, else "joined" if it has committed rounds without this peer and is not over, else
        "started". Raises MembershipError, PeerLost and CatchUpFailed, and ValueError in a run that averages gradients
        if others have begun."""
        if contact is None:
            self.membership.found()
        else:
            await self.averaging.enter(contact)
        late = self.membership.view.started and self._clock.before_s == 0.0
        await self.averaging.gather()
        self._following = late and self.state.round > 0 and self.averaging.period > 0
        self._clock.start()
        if self._following and self._options.gradients:
            raise ValueError(
                "this run averages gradients and has begun: a latecomer has not the others' optimizer state"
            )
        if self.state is self._resumed_from:
            self._taken = self._spent.steps = steps  # no record has counted them yet
            self._round_began_s = self._clock.elapsed_s
        else:  # steps since the checkpoint are lost where the others are further
            self._go_on_from(self.state.vector)
        return "resumed" if self._clock.before_s else "joined" if self._following else "started"

    async def finish(self) -> End | None:
        """Wait until the run is over for all members, which may still need this peer. If this peer's replica ended
        before the run did, wait only until no member needs the result of the last round from it, and for
        `leaves_within_s` at most. Returns why the run is over; None: it is not."""
        if self._left:
            with contextlib.suppress(TimeoutError, MembershipError, Expelled):
                async with asyncio.timeout(self._options.leaves_within_s):
                    await self._farewell.say()
        else:
            with self.averaging.stalls.waiting(lambda: set(self.membership.view.ids) - self.membership.finished):
                await self.membership.finish()
            self._evaluations.finished()
        return self.averaging.ends.reason(self.state.step, self.state.counts)

    async def leave(self, why: str) -> None:
        await self.membership.leave(why)

    async def settle(self) -> Sequence[Outcome]:
        evaluated, ended = self._evaluations.give_up(), await self._behind.give_up()
        if ended is None:
            return evaluated
        done, period = ended
        return [*evaluated, self._outcome_of(done, period, self._merge(done))]

    def close(self) -> None:
        self._behind.close()

    def position(self) -> Position:
        brought = self._behind.brought
        return position_of(self.state, self.averaging.residual, self._begin if brought is None else brought)

    # Works

    async def next(self) -> Work | None:
        work = self._next()
        if work is not None and self._options.grows and isinstance(work.job, Steps):
            work = replace(work, job=replace(work.job, unfreeze=self.averaging.growth.urged))
        self._job = self._job if work is None else work.job
        return work

    def _next(self) -> Work | None:
        if (vector := self._evaluations.due) is not None:
            return Work(self._begin, Evaluate(vector))
        if self._left or self.averaging.period == 0:
            return None
        if self._options.gradients:
            return Work(self._begin, Gradient())
        if self._following or self._behind.merges:
            return Work(self._begin, Steps(0, self._taken))
        return Work(self._begin, self._steps())

    def _steps(self) -> Steps:
        if self._taken == 0:
            self._round_began_s = self._clock.elapsed_s
        if self._behind.brought is not None:
            return self._behind.hide()
        mine = self._contributions
        total = mine.due
        site = self._options.site_period or total
        count, step = max(0, min(total - self._taken, site - self._taken % site)), self.state.step + self._taken
        return Steps(count, self._taken, total, step, halfway=mine.watched, correction=mine.correction)

    def _go_on_from(self, vector: Tensor) -> None:
        """The next round begins from the model `vector` [n]."""
        self._begin, self._taken = Load(vector, self._options.fresh_optimizer, grown=self.state.grown), 0
        self._contributions.begin_round(vector)
        witness(rounds.WentOn(vector))

    # What the replica brings

    async def bring(self, update: Update) -> Outcome | None:
        job = self._job
        if isinstance(job, Evaluate):
            return self._evaluations.end(update)
        if isinstance(job, Gradient):
            return await self._bring_gradient(update)
        assert isinstance(job, Steps)
        if self._following:
            return await self._follow(update)
        self._spent.add(update, update.steps - job.taken)
        if self._behind.brought is not None:
            return await self._end_behind(update)
        self._left = update.final
        if update.final and update.steps == 0:
            self._begin = Load(self.state.vector, grown=self.state.grown)
            return None
        if update.steps < self._contributions.due and not update.final and not self._behind.merges:
            return await self._average_at_site(update)
        return await self._average_with_all(update)

    async def _average_with_all(self, update: Update) -> Outcome | None:
        self._behind.merges = False
        contribution, meanwhile = self._brought(update), self._meanwhile
        if meanwhile > 0 and not update.final:
            steps = Steps(meanwhile, total=meanwhile, step=self.state.step + self.averaging.period)
            self._behind.begin(update, steps, self._average(contribution, Spent()))
            self._begin, self._taken = Keep(), 0
            return None
        done, period = await self._average(contribution, self._spent)
        self._go_on_from(self.state.vector if update.final else done.vector)
        return self._ended(done, period, update)

    @property
    def _meanwhile(self) -> int:
        """Local steps to take while the next round is averaged; 0: it is the last round, or there is no overlap."""
        left, meanwhile = self.averaging.ends.left(self.state.step, self.state.counts), self._options.meanwhile
        if meanwhile is None or left is None:
            return meanwhile or 0
        return max(0, min(meanwhile, left - self.averaging.period))

    async def _end_behind(self, update: Update) -> Outcome | None:
        """The local steps that hid a round are taken: wait for the round's mean."""
        done, period = await self._behind.end()
        if done.caught_up or not update.steps:
            self._behind.drop()
            self._left = update.final
            self._go_on_from(self.state.vector if update.final else done.vector)
        else:
            self._taken = update.steps
            self._merge(done)
        return self._ended(done, period, update)

    def _merge(self, done: rounds.Outcome) -> Update:
        update, self._begin = self._behind.merge(done)
        if self.averaging.period == 0:  # nobody could know that it was the last round: all go back to its result
            self._behind.merges = False
            self._go_on_from(self.state.vector)
        return update

    async def _average_at_site(self, update: Update) -> Outcome | None:
        before, site_period = self.state, self._options.site_period
        assert site_period is not None, "else the steps of a round are one work"
        vector = await self.averaging.average_at_site(self._brought(update), update.steps // site_period)
        if self.state is not before:  # the round is over
            self._go_on_from(self.state.vector)
        else:
            self._begin, self._taken = Load(vector, amid=True, grown=before.grown), update.steps
        return None

    async def _follow(self, update: Update) -> Outcome | None:
        done, period = await self._average(self._brought(update), Spent())
        self._go_on_from(done.vector)
        if not done.caught_up or self.averaging.period == 0:
            self._following = False
            self._clock.start(done.elapsed_s)
        return self._ended(done, period, update)

    async def _bring_gradient(self, update: Update) -> Outcome | None:
        if update.final:
            self._left, self._begin = True, Keep()
            return None
        self._spent.add(update, 1)
        before = self.state.round
        done, period = await self._average(self._brought(update), self._spent)
        if self.state.round != before + 1:
            raise MembershipError("the others have taken steps without this peer, and it has not their optimizer state")
        self._begin = StepWith(None if done.vector is update.vector else done.vector)
        return self._ended(done, period, update)

    def _brought(self, update: Update) -> Contribution:
        return self._contributions.of(update, self._round_began_s, bystander=self._following)

    async def _average(self, contribution: Contribution, spent: Spent) -> tuple[rounds.Outcome, int]:
        """Average one round. Returns its outcome and its period."""
        period = self.averaging.period
        done = await self._contributions.average(contribution, spent)
        self._farewell.moved_on()
        return done, period

    def _ended(self, done: rounds.Outcome, period: int, update: Update) -> Outcome | None:
        """The outcome of a round; None: its model is evaluated first."""
        # With overlap the replica's model is another one than the round's.
        vector = done.state.vector if self._behind.merges else done.vector
        return self._evaluations.begin(self._outcome_of(done, period, update), vector)

    def _outcome_of(self, done: rounds.Outcome, period: int, update: Update) -> Outcome:
        spent, self._spent = self._spent, Spent()
        coordinates = self.membership.coordinator == self.membership.me.id
        note = self._options.period_stays(done.loss, update.learning_rate) if coordinates else ""
        told = not math.isnan(update.loss)
        left = self.averaging.ends.left(done.state.step, done.state.counts)
        return outcome_of(done, period, spent, left=left, last=self.averaging.period == 0, told=told, note=note)
