"""Local-update SGD over allreduce: every peer takes some local steps, then all take the weighted mean of their models.

PASGD (Wang & Joshi, SysML 2019, 1810.08313, eq. 3): x_i <- x_i - eta g_i for `period` steps, then x_i <- mean_j x_j,
here weighted by samples. The period is a function of signals that the round itself averages (15 at least, appended to
the vector: `Contribution.signals`), so all peers agree on the next period without a further message.

| paper | here |
|---|---|
| x_i | `Contribution.vector` |
| tau | `State.period.period` |
| m | the members of the view that contributed a weight above 0 |

Cost: the schedule's, for n + 16 elements, and one round trip to the coordinator for the verdict (`commit`).
On failure: the view changes, and the remaining members run the round again with the same contributions, unless one of
them holds the result: then all take that. A connection that is too slow is given up (`stragglers`). A peer that comes
too late for a round catches up. When results differ (a broken machine), the most common one is the round's, and the
other peers fetch it. A peer that contributes impossible numbers is given up (`inquest`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from torch import Tensor

from ...aggregation.codecs.codec import Codec
from ...aggregation.fragments import Fragments
from ...aggregation.growth import to_bits
from ...aggregation.outer import OuterStep
from ...aggregation.periods.policy import PeriodPolicy
from ...aggregation.schedules.schedule import Schedule
from ...aggregation.vector import Layout, Part
from ..channel import Channel
from ..collectives.bound import NORM_LIMIT, Bound
from ..collectives.reducer import Reducer
from ..group import Group
from ..link_quality.bandwidths import Bandwidths
from ..link_quality.costs import measured
from ..members.attached import Standing
from ..members.joining import Entry
from ..members.membership import Membership
from ..members.view import Decree, Version
from ..stalls.stalls import Stalls
from ..testpoints import sometimes, witness
from ..transfer.chunks import AttemptId
from ..transfer.snapshot_transfer import Donor
from ..transport import PeerId
from .attempts import Attempts
from .averager_choice import chosen
from .catch_up import fetching
from .commit import BAD, Verdicts
from .ends import ENDLESS, Ends
from .growth import Growth
from .inquest import Inquest
from .lag import Behind, Lag
from .learner import Learner
from .results import Results
from .rounds import Committed, Contributed, Installed, Result
from .rounds import Contribution as Contribution
from .rounds import Outcome as Outcome
from .site_averaging import SiteRounds
from .state import State, to_snapshot
from .stragglers import Lateness
from .trial import Trial
from .versions import Versions

T = TypeVar("T")


class LocalSGD:
    """One peer's averaging with all others, round by round. `state`: the last state that this peer has committed."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        stalls: Stalls,
        *,
        layout: Layout,
        schedule: Callable[[Group], Schedule],
        period: PeriodPolicy,
        outer: OuterStep,
        state: State,
        ends: Ends = ENDLESS,
        codec: Codec | None = None,
        residual: Tensor | None = None,
        buckets: Sequence[Part] = (),
        fragments: int = 1,
        seed: int = 0,
        uneven: bool = False,
        norm_limit: float = NORM_LIMIT,
    ) -> None:
        """Attaches itself to `membership`. `layout`: the one with which the run begins. `schedule` is called with a
        group. `ends`: when the run is over. `codec` encodes vectors; `residual`: its compression residual at `state`,
        None: zeros; `buckets`: parts averaged as they are filled; `fragments`: how many, averaged one a round; `seed`:
        the run's; `uneven`: parts are cut by the members' bandwidths; `norm_limit`: see `Bound`."""
        self.channel, self.state, self.ends = channel, state, ends
        self.watches = period.watches
        """Whether the period policy needs each `Contribution.motion`."""
        self._result: Result | None = None
        self._committed: Result | None = None
        self._amid = False
        """Whether this peer's site has averaged since the last round."""
        self._versions = Versions(state)
        Donor(channel, lambda: to_snapshot(self.state, to_bits(layout, self.state.grown)))
        self.membership = membership
        membership.attach(self)
        self._lag = Lag(channel, membership, layout, len(state.outer), self._adopt, lambda: self.standing().state)
        self.stalls, self.meter = stalls, stalls.meter
        self.growth = Growth(channel, membership, layout, stalls.meter, lambda: self.state)
        me = channel.endpoint.id
        self._reducer = Reducer(channel, schedule, lambda: membership.view.group(me), Bound(norm_limit), self.meter)
        inquest = Inquest(channel, self.membership, self._reducer)
        self._sites = SiteRounds(channel, self.membership, self._reducer, inquest)
        cut, grown = Fragments.of(layout.size, fragments), self.growth
        owed = None if residual is None else (state.round, residual, state.grown)
        self._averager = chosen(self._reducer, grown.layout, cut, codec=codec, owed=owed, buckets=buckets, seed=seed)
        summed_bytes = partial(grown.summed_bytes, len(cut.parts))
        late = Lateness(channel, self.membership, self._reducer, summed_bytes, lambda: self.state.links)
        self._attempts = self._attempts_with(late, layout)
        bandwidths = Bandwidths(channel, self.membership, summed_bytes, lambda: self.state.links) if uneven else None
        self._verdicts = Verdicts(channel, self.membership, lambda: self.state.round, bandwidths)
        self._results = Results(cut, outer, period, ends)
        self._trial = Trial(
            self.membership,
            self._averager,
            self._reducer,
            self._verdicts,
            self._results,
            inquest=inquest,
            hopeful=self._attempts.hopeful,
            keep=self._keep,
            version=self._versions.of,
        )

    def _attempts_with(self, late: Lateness, layout: Layout) -> Attempts:
        """The attempts, with their entry, learner and lag."""
        channel, membership, outer = self.channel, self.membership, len(self.state.outer)
        standing, over, adopt = self.standing, self._over, self._adopt
        learner = Learner(channel, membership, layout, outer, standing=standing, over=over, adopt=adopt)
        self._entry = Entry(channel.endpoint, membership, fetch=fetching(channel, layout, outer, adopt), over=over)
        return Attempts(
            membership,
            self._lag,
            learner,
            self._entry,
            self._reducer.inbox,
            late,
            self.stalls,
            state=lambda: self.state,
            over=self._over,
        )

    @property
    def residual(self) -> Tensor | None:
        """The compression residual of this peer's changes up to `state`, for a checkpoint; None: there is none, or it
        is older."""
        owed = self._averager.owed
        return None if owed is None or owed[0] != self.state.round else owed[1]

    @property
    def bytes_shared(self) -> int:
        """Bytes that this peer has written to shared memory for others, and read there."""
        return self._reducer.bytes_shared

    @property
    def period(self) -> int:
        """Local steps from the last average to the next one. Fewer at the end of the run; 0 when it is over."""
        period, left = self.state.period.period, self.ends.left(self.state.step, self.state.counts)
        return period if left is None else min(period, left)

    def _over(self) -> bool:
        return self.period == 0

    # Coming and going

    async def enter(self, contact: PeerId) -> None:
        """Join the run through `contact`, and return when this peer is in the view. Errors: as in `Entry.enter`."""
        await self._entry.enter(contact)

    async def gather(self) -> None:
        """Wait until enough peers have gathered for the first round, or the run is over (`Attempts.gather`)."""
        await self._attempts.gather()

    # A round

    async def average(self, contribution: Contribution) -> Outcome:
        """Average `contribution` with those of all members, until this peer has committed the round, or has caught up
        with it. Returns the round's outcome. Once cancelled, the same round cannot be averaged again. Raises
        MembershipError when this peer cannot go on. Raises ValueError when the contribution is not finite, or when
        there is no mean and no peer is to blame: then this peer has left the run, and has told the others why."""
        return await self.or_leave(self._average(contribution))

    async def _average(self, contribution: Contribution) -> Outcome:
        before, meter = self.state, self.meter
        ready = meter.begin(computing=contribution.filling is not None, goes_on=self._amid)
        if contribution.filling is not None:
            contribution.filling.when_whole(ready)
        while (attempt := await self._attempts.next(before)) is not None:
            contribution = contribution._replace(links=measured(self.channel, self.membership.view.ids))
            meter.read()
            before_s = meter.transfer_s
            self._sites.pass_by(attempt)
            async with self._attempts.at(attempt, contribution.filling):
                async with self._attempts.while_hopeful(attempt) as hopeful:
                    if hopeful:
                        await self._attempt(attempt, contribution)
                self._decide(attempt)
            if self.state is before:
                meter.count_as_wait(before_s)
        self._amid = False
        state, contribution = self.state, self.growth.fitted(contribution, self.state)
        return self._results.outcome(contribution, state, self._committed, self.membership.view, meter, self.period)

    async def average_at_site(self, contribution: Contribution, turn: int) -> Tensor:
        """Average within a round with the peers of this peer's site. `turn`: which of these averages in the round it
        is, from 1. Returns the vector [n] from which this peer continues; if `state` has changed meanwhile, the round
        is over, and it continues from `state` instead. Raises as `average`."""
        return await self.or_leave(self._average_at_site(contribution, turn))

    async def _average_at_site(self, contribution: Contribution, turn: int) -> Tensor:
        before, contribution = self.state, self.growth.fitted(contribution, self.state)
        mean: Tensor | None = None
        self.meter.begin(computing=False, goes_on=self._amid)
        self._amid = True
        while mean is None and (attempt := await self._attempts.next(before)) is not None:
            async with self._attempts.at(attempt), self._attempts.while_hopeful(attempt) as hopeful:
                if hopeful:
                    mean = await self._sites.mean(contribution, before.vector, attempt, turn)
        self.meter.read()
        return contribution.vector if mean is None else mean

    async def or_leave(self, work: Awaitable[T]) -> T:
        """Await `work` and return its result. If it raises ValueError, this peer first tells the others why, and
        leaves."""
        try:
            return await work
        except ValueError as error:
            await self.membership.leave(str(error))
            raise

    def _decide(self, attempt: AttemptId) -> None:
        """After an attempt with a verdict: commit its result, or fetch the others' result if theirs differs."""
        verdict, result = self._verdicts.on(attempt), self._result
        if verdict in (None, BAD) or (result is None and self._trial.bad != attempt):
            return
        if result is not None and result.fingerprint == verdict:
            self._commit(result)
        else:
            sometimes("a result differed and was not taken")
            # Our result differs from the others': fetch theirs. The verdict is on the sum, not on their state.
            self._result, self._lag.behind = None, Behind(Version(attempt[1], 0), ())

    async def _attempt(self, attempt: AttemptId, contribution: Contribution) -> None:
        contribution, before = await self.growth.agreed(attempt, contribution, self.state)
        brought = (contribution.vector, contribution.weight, self.membership.view.ids)
        witness(Contributed(attempt, *brought, contribution.steps, contribution.speeds, before.speeds))
        result = await self._trial.make(attempt, contribution, before, self.period)
        if result is not None:
            self._commit(result)

    def _keep(self, result: Result | None) -> None:
        self._result = result

    # The state

    def _commit(self, result: Result) -> None:
        self._averager.committed()
        self.state, self._result, self._committed = result.state, None, result
        self._versions.committed()
        state, told = result.state, (result.weight, result.elapsed_s)
        witness(Committed(state.round, state.vector, result.attempt, *told, state.period.period))

    def _adopt(self, state: State) -> None:
        self.state, self._result, self._lag.behind = state, None, None
        witness(Committed(state.round, state.vector, None, 0.0))

    def standing(self) -> Standing:
        """The versions of this peer's committed state and of its newest result, and the seconds that a round usually
        takes, as the membership asks for them in a change of the view."""
        result = self.state if self._result is None else self._result.state
        return Standing(self._versions.of(self.state), self._versions.of(result), self._versions.usual_s)

    def installed(self, decree: Decree) -> None:
        """Called by the membership when this peer is in the decree's view, as a member or a learner. A member whose
        result is the decree's base, the version from which the members continue, commits it; any other result is
        dropped. If `state` is not the base then, the member fetches the base before its next attempt at a round. A
        learner drops its result, and fetches as a learner."""
        view, base = decree.view, decree.base
        if self.channel.endpoint.id not in view.ids:
            self._result, self._lag.behind = None, None
            return
        witness(Installed(view.generation, view.ids, base.number, decree.donors))
        if self._result is not None and self._versions.of(self._result.state) == base:
            sometimes("a result was handed on by a change")
            self._commit(self._result)
        self._result = None
        self._lag.behind = None if self._versions.of(self.state) == base else Behind(base, decree.donors)
