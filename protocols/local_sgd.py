"""Local-update SGD over allreduce: every peer takes some local steps, then all take the weighted mean of their models.

PASGD (Wang & Joshi, SysML 2019, 1810.08313, eq. 3): x_i <- x_i - eta g_i for `period` steps, then x_i <- mean_j x_j,
here weighted by samples. The period is a function of what the round itself has averaged (loss, elapsed time, learning
rate ride along in the vector), so all peers agree on the next one without a message more.

| paper | here |
|---|---|
| x_i | `Contribution.vector` |
| tau | `State.period.period` |
| m | the members of the view who contributed a weight above 0 |

Cost: the schedule's, for n + 4 elements, and one round trip to the coordinator for the verdict (`verdict`).
On loss, lateness, death: the view changes, and the round is run again with the same contributions among those who are
left, unless one of them holds the result: then all take that (`lateness`: whose part comes too slowly). A peer that
comes too late for a round catches up. When results differ (a broken machine), the one that most have is the round's,
and the others fetch it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from ..aggregation.codecs.codec import Codec
from ..aggregation.fragments import Fragments
from ..aggregation.mean import Mean
from ..aggregation.outer import OuterStep
from ..aggregation.periods.policy import PeriodPolicy
from ..aggregation.schedules.schedule import Schedule
from ..aggregation.vector import Layout, Part
from .attempts import Attempts
from .bandwidths import Bandwidths
from .catch_up import Donor
from .endpoint import Endpoint
from .entry import Entry
from .lag import Lag
from .lateness import Lateness
from .link_costs import measured
from .members.membership import Membership, Standing
from .members.view import View
from .off_loop import off_loop
from .reduction.averagers import Averager, averager_for
from .reduction.bucketwise import BucketAverager
from .reduction.fragmentwise import FragmentAverager
from .reduction.reducer import Reducer
from .rounds import Committed, Computed, Contributed, Installed, Key, Result, told
from .rounds import Contribution as Contribution
from .rounds import Outcome as Outcome
from .site_rounds import SiteRounds
from .state import State, fingerprint
from .transport import PeerId
from .verdict import Verdicts
from .witness import sometimes, witness


class LocalSGD:
    """One peer's part in the averaging, and the keeper of its committed `state`."""

    def __init__(
        self,
        endpoint: Endpoint,
        membership: Callable[[Callable[[], Standing], Callable[[View, int, tuple[PeerId, ...]], None]], Membership],
        *,
        layout: Layout,
        schedule: Callable[[View], Schedule],
        period: PeriodPolicy,
        outer: OuterStep,
        state: State,
        steps: int | None = None,
        codec: Codec | None = None,
        residual: Tensor | None = None,
        buckets: Sequence[Part] = (),
        fragments: int = 1,
        seed: int = 0,
        uneven: bool = False,
    ) -> None:
        """`membership` builds it from the two things it must know of us; `schedule` chooses one for a view;
        `steps`: local steps of the whole run, None without end. `codec`: for what is sent; `residual`: what it had left
        out up to `state`; `buckets`: in which contributions are filled; `fragments`: averaged in turn; `seed`: the
        run's; `uneven`: parts of the sharded schedule go by the members' bandwidths."""
        self.endpoint, self.state, self.steps = endpoint, state, steps
        self._layout, self._period, self._outer = layout, period, outer
        self.watches = period.watches
        """Whether contributions should tell of the peers' motion."""
        self._fragments = Fragments.of(layout.size, fragments)
        self._result: Result | None = None
        self._committed: Result | None = None
        self._amid = False
        """Whether this peer's site has averaged since the last round."""
        self._fingerprint = (state, fingerprint(state.vector))
        Donor(endpoint, lambda: self.state)
        self.membership = membership(self._standing, self._installed)
        self._lag = Lag(endpoint, self.membership, layout, len(state.outer), self._adopt)
        self._reducer = Reducer(endpoint, schedule, lambda: self.membership.view)
        self._sites = SiteRounds(endpoint, self.membership, self._reducer)
        self._inbox, self.meter = self._reducer.inbox, self._reducer.inbox.meter
        if buckets:
            self._averager: Averager = BucketAverager(self._reducer, buckets)
        else:
            count = len(self._fragments.parts)
            owed = None if residual is None or count > 1 else (state.round, residual)
            each = [averager_for(codec, self._reducer, layout, seed, owed, count) for _ in self._fragments.parts]
            self._averager = FragmentAverager(each, self._fragments) if count > 1 else each[0]
        self._entry = Entry(
            endpoint,
            self.membership,
            layout,
            state=lambda: self.state,
            standing=self._standing,
            over=self._over,
            adopt=self._adopt,
        )
        summed_bytes = layout.nbytes // len(self._fragments.parts)
        late = Lateness(endpoint, self.membership, self._reducer, summed_bytes, lambda: self.state.links)
        self._attempts = Attempts(
            self.membership, self._lag, self._entry, self._inbox, late, state=lambda: self.state, over=self._over
        )
        bandwidths = Bandwidths(endpoint, self.membership, summed_bytes, lambda: self.state.links) if uneven else None
        self._verdicts = Verdicts(endpoint, self.membership, lambda: self.state.round, bandwidths)

    @property
    def residual(self) -> Tensor | None:
        """What the codec has left out of this peer's changes up to `state`, for a checkpoint; None: nothing."""
        owed = self._averager.owed
        return None if owed is None or owed[0] != self.state.round else owed[1]

    @property
    def bytes_shared(self) -> int:
        """What it has written for others to memory that they share, and read there."""
        return self._reducer.bytes_shared

    @property
    def period(self) -> int:
        """Local steps until the next average; fewer at the end of the run, 0 when it is over."""
        period = self.state.period.period
        return period if self.steps is None else max(0, min(period, self.steps - self.state.step))

    def _over(self) -> bool:
        return self.period == 0

    # Coming and going

    async def enter(self, contact: PeerId) -> None:
        """Join through `contact`: see `Entry.enter`."""
        await self._entry.enter(contact)

    async def gather(self) -> None:
        """Wait until enough peers have gathered: see `Attempts.gather`."""
        await self._attempts.gather()

    async def settle(self) -> None:
        """The same, or until the run is over."""
        await self._attempts.settle()

    # A round

    async def average(self, contribution: Contribution) -> Outcome:
        """Average with all members; returns when the round is committed here, or has been caught up with. Once
        cancelled, the same round cannot be averaged again.

        Raises MembershipError when this peer cannot go on, and ValueError when the contribution, or the mean, is not
        finite: then nothing is committed.
        """
        before, meter = self.state, self.meter
        ready = meter.begin(computing=contribution.filling is not None, goes_on=self._amid)
        if contribution.filling is not None:
            contribution.filling.when_whole(ready)
        await off_loop(self._layout.nbytes, contribution.check)
        while (key := await self._attempts.next(before)) is not None:
            contribution = replace(contribution, links=measured(self.endpoint, self.membership.view.ids))
            witness(Contributed(key, contribution.vector, contribution.weight, self.membership.view.ids))
            meter.read()
            before_s = meter.transfer_s
            self._sites.pass_by(key)
            attempt, decide = partial(self._attempt, key, contribution), partial(self._decide, key)
            await self._attempts.make(key, attempt, decide, contribution.filling)
            if self.state is before:
                meter.in_vain(before_s)
        self._amid = False
        return self._outcome(contribution)

    async def average_at_site(self, contribution: Contribution, turn: int) -> Tensor:
        """Average amid a round, at its `turn`, counted from 1, with the peers of this peer's site; returns the vector
        that it goes on from. When `state` is another afterwards, that round is over, and it goes on from there.

        Raises as `average`.
        """
        before, gone_on = self.state, list[Tensor]()
        self.meter.begin(computing=False, goes_on=self._amid)
        self._amid = True
        await off_loop(self._layout.nbytes, contribution.check)

        async def attempt(key: Key) -> None:
            gone_on.append(await self._sites.mean(contribution, key, turn))

        while not gone_on and (key := await self._attempts.next(before)) is not None:
            await self._attempts.make(key, partial(attempt, key), lambda: None)
        self.meter.read()
        return gone_on[0] if gone_on else contribution.vector

    def _decide(self, key: Key) -> None:
        """After an attempt: commit its result, if the verdict is so."""
        verdict, result = self._verdicts.on(key), self._result
        if verdict is not None and result is not None:
            if result.fingerprint == verdict:
                self._commit(result)
            else:
                sometimes("a result differed and was not taken")
                self._result, self._lag.behind = None, (key[1], ())  # ours is not what the others have: take theirs

    async def _attempt(self, key: Key, contribution: Contribution) -> None:
        view, weight = self.membership.view, contribution.weight
        if len(view.ids) == 1 and weight > 0:  # nobody to ask, and the mean of one is that one, to the bit
            if contribution.filling is not None:
                contribution = replace(contribution, vector=await contribution.filling.whole(), filling=None)
                await off_loop(self._layout.nbytes, contribution.check)
            self._commit(self._result_of(key, Mean(contribution.vector, contribution.signals, weight), 0))
            return
        mean, mark = await self._averager.mean(contribution, self.state.vector, key)
        if mean is None:
            sometimes("nobody contributed to a round")
            result = self._idle_result(key, contribution, mark)
        else:
            nbytes, agreed = self._layout.nbytes, mean
            result = await off_loop(nbytes, lambda: self._result_of(key, agreed, mark))
        if not self._attempts.hopeful(key):
            return  # we have promised to commit nothing more in this generation, and told what we hold
        self._result = result
        witness(Computed(key, result.fingerprint))
        if self._reducer.in_place:
            await self._reducer.all_have(key)
            self._commit(result)
        else:
            await self._verdicts.reach(key, result.fingerprint)

    def _result_of(self, key: Key, mean: Mean, mark: int) -> Result:
        before, (numbers, links, speeds) = self.state, told(mean.signals)
        vector, outer = self._fragments.step(self._outer, key[1], before.vector, mean.vector, before.outer)
        period = self._period.update(before.period, numbers)
        state = State(before.round + 1, before.step + self.period, vector, outer, period, links, speeds)
        return Result(key, state, mean.weight, numbers.loss, numbers.elapsed_s, mark)

    def _idle_result(self, key: Key, contribution: Contribution, mark: int) -> Result:
        """Of a round to which all who are left only came to follow: the model stays, and they train for the next."""
        state = replace(self.state, round=self.state.round + 1)
        return Result(key, state, 0.0, contribution.loss, contribution.elapsed_s, mark)

    # The state

    def _commit(self, result: Result) -> None:
        self._averager.committed()
        self.state, self._result, self._committed = result.state, None, result
        witness(Committed(result.state.round, result.state.vector, result.key, result.weight))

    def _adopt(self, state: State) -> None:
        self.state, self._result, self._lag.behind = state, None, None
        witness(Committed(state.round, state.vector, None, 0.0))

    def _standing(self) -> Standing:
        state = self.state if self._result is None else self._result.state
        if self._fingerprint[0] is not state:
            self._fingerprint = (state, fingerprint(state.vector))
        return Standing(state.round, self._fingerprint[1])

    def _installed(self, view: View, round_: int, donors: tuple[PeerId, ...]) -> None:
        """A new view goes on from `round_`: who has its result commits it, the others fetch it."""
        witness(Installed(view.generation, view.ids, round_, donors))
        has_it = self.endpoint.id in donors
        if has_it and self._result is not None and self._result.state.round == round_:
            sometimes("a result was handed on by a change")
            self._commit(self._result)
        self._result = None
        self._lag.behind = None if has_it and self.state.round == round_ else (round_, donors)

    def _outcome(self, contribution: Contribution) -> Outcome:
        view, own, meter = self.membership.view, self._committed, self.meter
        averaged = own is not None and own.state is self.state
        meter.read()
        if not averaged:
            meter.in_vain(0.0)
        whole, own_steps = self.state.vector, averaged and contribution.weight > 0 and self.period > 0
        return Outcome(
            state=self.state,
            vector=self._fragments.mixed(contribution.vector, whole, self.state.round) if own_steps else whole,
            part=self._fragments.at(self.state.round) if own_steps else Part(0, len(whole)),
            loss=own.loss if own is not None and averaged else contribution.loss,
            elapsed_s=own.elapsed_s if own is not None and averaged else contribution.elapsed_s,
            generation=view.generation,
            members=len(view.members),
            caught_up=not averaged,
            waited_for=meter.waited_for,
            compute_s=meter.compute_s,
            wait_s=meter.wait_s,
            transfer_s=meter.transfer_s,
            hidden_s=meter.hidden_s,
        )
