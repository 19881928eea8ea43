"""A peer: its endpoint, membership, averaging and records. The loop of a task and a script's own loop drive the same
class, and so does the simulation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from torch import Tensor

from ..aggregation.buckets import buckets
from ..aggregation.codecs.codec import allreduce_bytes
from ..aggregation.codecs.registry import parse_codec
from ..aggregation.scaffold import ControlVariate
from ..aggregation.vector import Layout
from ..protocols.channel import Channel
from ..protocols.endpoint import Endpoint
from ..protocols.link_quality.reachability import Prober
from ..protocols.local_sgd.exit_barrier import Farewell
from ..protocols.local_sgd.local_sgd import Contribution, LocalSGD, Outcome
from ..protocols.local_sgd.rounds import LOCAL_SGD
from ..protocols.local_sgd.state import State
from ..protocols.members.hello import Greeter
from ..protocols.members.invitation import Invitation
from ..protocols.members.ledger import Store
from ..protocols.members.membership import Membership, Standing
from ..protocols.members.messages import MEMBERS
from ..protocols.members.view import Decree, Member, View
from ..protocols.transport import PeerId
from .conversations.pace import Pace, renew
from .conversations.policies import outer_step, period_policy, why_period_stays
from .conversations.schedules import schedule_for, uneven
from .records.comings import Comings
from .records.records import EventName, EventRecord, Record, RoundRecord
from .settings.settings import Settings
from .task.constants import Agreement
from .task.evaluation import NOT_EVALUATED, Evaluation

Spent = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """A peer's identity in the run: `name`, for people; `data_part`, the part of the data that it asks for; `link`, to
    which its connection is shaped, for the records; and its `site`."""

    name: str
    data_part: int
    link: str = ""
    site: str = ""


class Peer:
    """One peer of a run. `record` is called with every round and event. All times are on the running loop's clock."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings,
        identity: Identity,
        *,
        run: str,
        layout: Layout,
        state: State,
        agreement: Agreement | None = None,
        parameters: int | None = None,
        residual: Tensor | None = None,
        invitation: Invitation | None = None,
        elapsed_s: float = 0.0,
        steps: int | None = None,
        record: Callable[[Record], None] = lambda record: None,
        store: Store | None = None,
    ) -> None:
        """`state`: where to begin; `parameters`: how many elements, the vector's first, the outer step applies to,
        None: all; `agreement`: in what all models must be equal, None: `layout`; `residual`: the codec's compression
        residual at `state`; `elapsed_s`: duration of the run before it was resumed; `steps`: local steps of the whole
        run, None when a script decides; `store`: storage of its votes; `invitation`: admits others. Raises ValueError
        when the state is of another outer step, or beyond the end."""
        if steps is not None and state.step > steps:
            gone = f"this run has gone {state.step} local steps"
            raise ValueError(f"{gone}, and is to end after {steps}: give more --steps")
        self.endpoint, self.settings, self.name = endpoint, settings, identity.name
        self._record, self._elapsed_before_s, self._store, self._invitation = record, elapsed_s, store, invitation
        self._shaped = f"its connection is shaped to {identity.link}" if identity.link else ""
        own = (identity.data_part, 0, endpoint.machine, "" if settings.site_period is None else identity.site)
        member = Member(endpoint.id, identity.name, endpoint.address, *own)
        codec = None if settings.codec == "none" else parse_codec(settings.codec)
        size_bytes = cache(partial(allreduce_bytes, codec, layout, settings.fragments))
        self.averaging = LocalSGD(
            Channel(endpoint, LOCAL_SGD),
            lambda standing, installed: self._join(member, run, agreement or Agreement.on(layout), standing, installed),
            layout=layout,
            schedule=lambda group: schedule_for(settings, size_bytes(len(group.ids)), group, self.state.links),
            period=period_policy(settings),
            outer=outer_step(settings, parameters, state),
            state=state,
            steps=steps,
            codec=codec,
            residual=residual,
            buckets=buckets(layout) if settings.average == "gradients" else (),
            fragments=settings.fragments,
            seed=settings.seed,
            uneven=uneven(settings, layout),
            norm_limit=settings.norm_limit,
        )
        self.membership = self.averaging.membership
        self._comings = Comings(endpoint, self.membership, self.tell)
        self.stalls = self.averaging.stalls
        self.stalls.patience_s = settings.compute_patience_s
        self.stalls.on_stall.append(self._comings.stalled)
        Greeter(endpoint, run=run, settings=settings.agreed_json())
        Prober(endpoint, lambda: self.membership.view.members)
        self._farewell = Farewell(self.averaging)
        self._clock = asyncio.get_running_loop().time
        self._started_at: float | None = None
        self._pace = Pace(settings.pace == "own", parameters)
        # For the local steps, where their drift is corrected.
        self.variate = ControlVariate(parameters) if settings.drift == "corrected" else None
        self._averaging_s = 0.0  # how long the last average took
        self.on_view: list[Callable[[View], None]] = []  # told of each view that this peer is a member of
        self._bytes = (0, 0, 0)
        self._period_told = False

    def _join(
        self,
        member: Member,
        run: str,
        agreement: Agreement,
        standing: Callable[[], Standing],
        installed: Callable[[Decree], None],
    ) -> Membership:
        def told(decree: Decree) -> None:
            installed(decree)
            self._comings.follow(decree.view)
            for listener in self.on_view:
                listener(decree.view)

        return Membership(
            Channel(self.endpoint, MEMBERS),
            member,
            run=run,
            layout=agreement.digest,
            model=f"{agreement.words} (peer {member.name})",
            founders=self.settings.peers,
            quorum=self.settings.quorum,
            give_up_after_s=self.settings.give_up_after_s,
            store=self._store,
            invitation=self._invitation,
            standing=standing,
            installed=told,
        )

    @property
    def state(self) -> State:
        return self.averaging.state

    @property
    def due(self) -> int:
        """Local steps of this peer until the next average: the period, or with its own pace what fits into the round's
        time; 0 when the run is over."""
        return self._pace.steps(self.averaging.period, self.state)

    def stretch(self, taken: int) -> int:
        """Local steps until the next average, of its site or of all, after `taken` steps of the round."""
        site_period = self.settings.site_period or self.due
        return max(0, min(self.due - taken, site_period - taken % site_period)) if self.due else 0

    @property
    def started(self) -> bool:
        """Whether this peer has begun to take part."""
        return self._started_at is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, including the time before it was resumed."""
        if self._started_at is None:
            return self._elapsed_before_s
        return self._clock() - self._started_at

    async def start(self, contact: PeerId | None) -> bool:
        """Found a run, or join it through `contact`, and wait until enough peers have gathered.

        Returns whether the run had begun before: then this peer is late and should `follow`.
        Raises JoinRefused, NoQuorum, PeerLost, CatchUpFailed.
        """
        if contact is None:
            self.membership.found()
        else:
            await self.averaging.enter(contact)
        late = self.membership.view.started and self._elapsed_before_s == 0.0
        await self.averaging.gather()
        late = late and self.state.round > 0 and self.averaging.period > 0
        self._started_at = self._clock() - self._elapsed_before_s
        self._comings.begin(self._started_at)
        self.tell("resumed" if self._elapsed_before_s else "joined" if late else "started", why=self._shaped)
        return late

    async def follow(self, contribution: Contribution) -> Outcome:
        """For a late joiner: take part in rounds with weight 0 until this peer is in step with the others."""
        while True:
            outcome = await self.average(contribution, compute_s=0.0, steps=0)
            self.note()
            if not outcome.caught_up or self.averaging.period == 0:
                self._started_at = self._clock() - outcome.elapsed_s
                self._comings.begin(self._started_at)
                return outcome

    async def average(self, contribution: Contribution, *, compute_s: float, steps: int) -> Outcome:
        """Average one round; see `LocalSGD.average`. `steps` took `compute_s`. `note` then writes the record."""
        period, before, began = self.averaging.period, self.state, self._clock()
        contribution = await self._pace.brought(contribution, period, before, compute_s=compute_s, steps=steps)
        if steps and self._averaging_s:
            motion = contribution.motion._replace(step_s=compute_s / steps, averaging_s=self._averaging_s)
            contribution = replace(contribution, motion=motion)
        outcome = await self.averaging.average(contribution)
        self._averaging_s = self._clock() - began
        if self.variate is not None:
            await renew(self.variate, contribution, outcome, self._pace.effective(period, before))
        self._farewell.moved_on()
        self._pending = (outcome, period, compute_s + outcome.compute_s, steps)
        self._tell_of_period(outcome.loss, contribution.learning_rate)
        return outcome

    def _tell_of_period(self, loss: float, learning_rate: float) -> None:
        """Record once, by the coordinator alone, that the period policy cannot use this loss or learning rate."""
        why = why_period_stays(self.settings, loss, learning_rate)
        if why and not self._period_told and self.membership.coordinator == self.endpoint.id:
            self._period_told = True
            self.tell("period", why=why)

    async def average_at_site(self, contribution: Contribution) -> Tensor:
        """Average with this peer's site, after a stretch that is not the round's last; see `LocalSGD`."""
        assert self.settings.site_period is not None, "else the round is one stretch"
        return await self.averaging.average_at_site(contribution, contribution.steps // self.settings.site_period)

    def note(
        self, evaluation: Evaluation = NOT_EVALUATED, *, loss_told: bool = True, spent: Spent | None = None
    ) -> None:
        """Write the record of the last averaged round, with the `evaluation` of its model if this peer made one.
        `spent`: seconds of compute and local steps, where they differ from those given to `average`."""
        outcome, period, compute_s, steps = self._pending if spent is None else (*self._pending[:2], *spent)
        waited_for, awaited_s = self.stalls.evaluation_awaited(outcome.state.round, outcome.waited_for, outcome.wait_s)
        now = (self.endpoint.bytes_sent, self.endpoint.bytes_received, self.averaging.bytes_shared)
        sent, received, shared = (count - before for count, before in zip(now, self._bytes, strict=True))
        record = RoundRecord(
            peer=self.name,
            round=outcome.state.round,
            generation=outcome.generation,
            period=period,
            step=outcome.state.step,
            time_s=self.elapsed_s,
            loss=outcome.loss if loss_told and not outcome.caught_up else math.nan,
            compute_s=compute_s,
            wait_s=outcome.wait_s,
            evaluation_wait_s=awaited_s,
            transfer_s=outcome.transfer_s,
            hidden_s=outcome.hidden_s,
            evaluate_s=evaluation.took_s,
            bytes_sent=sent,
            bytes_received=received,
            bytes_shared=shared,
            steps_per_s=steps / compute_s if compute_s > 0 else 0.0,
            members=outcome.members,
            missing=self._comings.missing(),
            accuracy=evaluation.accuracy,
            waited_for="" if waited_for is None else self.membership.view.name(waited_for),
            caught_up=outcome.caught_up,
        )
        self._bytes = now
        self._record(record)
        self._comings.were_there(record.members)

    def tell(self, event: EventName, **said: str) -> None:
        """Write an event to the records. `said`: the keywords of `Tell`."""
        now_s, generation = self.elapsed_s, self.membership.view.generation
        self._record(EventRecord(peer=self.name, time_s=now_s, event=event, generation=generation, **said))

    async def finish(self) -> None:
        """Wait at the end of the run for the others, who may still need this peer."""
        with self.stalls.waiting(lambda: set(self.membership.view.ids) - self.membership.finished):
            await self.membership.finish()

    async def farewell(self) -> None:
        """Wait until no other peer needs this peer's data of the last round."""
        await self._farewell.say()

    async def leave(self, why: str) -> None:
        """Leave before the run is over, once the others have agreed; they continue. Nothing is drained: the others have
        what they need, or `farewell` was not asked for, and peers that leave too no longer acknowledge."""
        await self.membership.leave(why)

    def close(self) -> None:
        """Stop everything at once."""
        self.stalls.close()
        self.membership.close()
        self.endpoint.abort()
