"""A peer: its endpoint, its membership, its averaging and its telemetry. Both ways in, task files and existing loops,
drive one of these; in simulation it is the very same."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from torch import Tensor

from ..aggregation.buckets import buckets
from ..aggregation.codecs.codec import allreduce_bytes
from ..aggregation.codecs.known import parse_codec
from ..aggregation.control_variate import ControlVariate
from ..aggregation.vector import Layout
from ..protocols.endpoint import Endpoint
from ..protocols.farewell import Farewell
from ..protocols.greeting import Greeter
from ..protocols.local_sgd import Contribution, LocalSGD, Outcome
from ..protocols.members.membership import Loss, Membership, Standing
from ..protocols.members.view import Member, View
from ..protocols.probe import Prober
from ..protocols.state import State
from ..protocols.transport import PeerId
from .pace import Pace, renew
from .policies import outer_step, period_policy
from .records import EventName, EventRecord, Missing, Record, RoundRecord
from .schedules import schedule_for, uneven
from .settings import Settings

Spent = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this peer is in the run: its name for people, and the part of the data it would like to have; the link that
    its connection is shaped to, for the records; and its site."""

    name: str
    data_part: int
    link: str = ""
    site: str = ""


class Peer:
    """`record` is told of every round and event. All times are on the running loop's clock."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings,
        identity: Identity,
        *,
        run: str,
        layout: Layout,
        state: State,
        parameters: int | None = None,
        residual: Tensor | None = None,
        guest: PeerId | None = None,
        elapsed_s: float = 0.0,
        steps: int | None = None,
        record: Callable[[Record], None] = lambda record: None,
    ) -> None:
        """`state`: where to begin; `parameters`: elements of the vector, its first, that the outer step is for, None:
        all; `residual`: what its codec had left out up to there; `elapsed_s`: how long the run had gone on before, when
        it is resumed; `steps`: local steps of the whole run, None when a script decides. Raises ValueError when the
        state is another outer step's, or beyond the end."""
        if steps is not None and state.step > steps:
            gone = f"this run has gone {state.step} local steps"
            raise ValueError(f"{gone}, and is to end after {steps}: give more --steps")
        self.endpoint, self.settings, self.name = endpoint, settings, identity.name
        self._record, self._elapsed_before_s = record, elapsed_s
        self._shaped = f"its connection is shaped to {identity.link}" if identity.link else ""
        site = "" if settings.site_period is None else identity.site
        member = Member(endpoint.id, identity.name, endpoint.address, identity.data_part, 0, endpoint.machine, site)
        codec = None if settings.codec == "none" else parse_codec(settings.codec)
        size_bytes = cache(partial(allreduce_bytes, codec, layout, settings.fragments))
        self.averaging = LocalSGD(
            endpoint,
            lambda standing, installed: self._join(member, run, layout, standing, installed),
            layout=layout,
            schedule=lambda view: schedule_for(settings, size_bytes(len(view.ids)), view, self.state.links),
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
        )
        self.membership = self.averaging.membership
        self.membership.on_waiting.append(lambda why: self.tell("waiting", why=why))
        agreed = settings.agreed_json()
        Greeter(endpoint, run=run, settings=agreed, guest=guest, members=lambda: self.membership.view.ids)
        Prober(endpoint, lambda: self.membership.view.members)
        self._farewell = Farewell(endpoint, self.averaging)
        self._clock = asyncio.get_running_loop().time
        self._started_at: float | None = None
        self._pace = Pace(settings.pace == "own", parameters)
        self.variate = ControlVariate(parameters) if settings.drift == "corrected" else None
        """For the local steps, where their drift is corrected."""
        self._averaging_s = 0.0
        """How long the last average took."""
        self._known = View(0, (), False)
        self._losses_told = 0
        self._events_told = 0
        self._bytes = (0, 0, 0)
        self._members = 0

    def _join(
        self,
        member: Member,
        run: str,
        layout: Layout,
        standing: Callable[[], Standing],
        installed: Callable[[View, int, tuple[PeerId, ...]], None],
    ) -> Membership:
        def told(view: View, round_: int, donors: tuple[PeerId, ...]) -> None:
            installed(view, round_, donors)
            self._follow(view)

        return Membership(
            self.endpoint,
            member,
            run=run,
            layout=layout.digest,
            model=f"{layout.size} elements in {len(layout.slots)} tensors (peer {member.name})",
            founders=self.settings.peers,
            quorum=self.settings.quorum,
            standing=standing,
            installed=told,
        )

    @property
    def state(self) -> State:
        return self.averaging.state

    @property
    def due(self) -> int:
        """Local steps that this peer takes until the next average: the period, or what fits into its time; 0 when the
        run is over."""
        return self._pace.steps(self.averaging.period, self.state)

    def stretch(self, taken: int) -> int:
        """Local steps until the next average, of its site or of all, when `taken` of the round are taken."""
        site_period = self.settings.site_period or self.due
        return max(0, min(self.due - taken, site_period - taken % site_period)) if self.due else 0

    @property
    def started(self) -> bool:
        """Whether it has taken part."""
        return self._started_at is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds that the run has gone on, the time before it was resumed included."""
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
        late = self.membership.view.started and self.state.round > 0 and self._elapsed_before_s == 0.0
        await self.averaging.gather()
        self._started_at = self._clock() - self._elapsed_before_s
        self._known = self.membership.view
        self.tell("resumed" if self._elapsed_before_s else "joined" if late else "started", why=self._shaped)
        return late

    async def follow(self, contribution: Contribution) -> Outcome:
        """As a late joiner: take part in rounds with weight 0 until this peer is in step with the others."""
        while True:
            outcome = await self.average(contribution, compute_s=0.0, steps=0)
            self.note()
            if not outcome.caught_up or self.averaging.period == 0:
                self._started_at = self._clock() - outcome.elapsed_s
                return outcome

    async def average(self, contribution: Contribution, *, compute_s: float, steps: int) -> Outcome:
        """One round; see `LocalSGD.average`. `note` then writes its record. `steps` were taken in `compute_s`."""
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
        return outcome

    async def average_at_site(self, contribution: Contribution) -> Tensor:
        """Average with this peer's site, after a stretch that is not the round's last; see `LocalSGD`."""
        assert self.settings.site_period is not None, "else the round is one stretch"
        return await self.averaging.average_at_site(contribution, contribution.steps // self.settings.site_period)

    def note(self, accuracy: float | None = None, *, loss_told: bool = True, spent: Spent | None = None) -> None:
        """Write the record of the round that was averaged last, with the accuracy if it was evaluated. `spent`: seconds
        of compute and local steps, when they are others than those before the averaging."""
        outcome, period, compute_s, steps = self._pending if spent is None else (*self._pending[:2], *spent)
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
            transfer_s=outcome.transfer_s,
            hidden_s=outcome.hidden_s,
            bytes_sent=sent,
            bytes_received=received,
            bytes_shared=shared,
            steps_per_s=steps / compute_s if compute_s > 0 else 0.0,
            members=outcome.members,
            missing=tuple(self._missing(loss) for loss in self._new_losses()),
            accuracy=accuracy,
            waited_for="" if outcome.waited_for is None else self.membership.view.name(outcome.waited_for),
            caught_up=outcome.caught_up,
        )
        self._bytes = now
        self._record(record)
        if record.members == 1 < self._members:
            self.tell("alone", why="everybody else has gone; it trains on, and others may join")
        self._members = record.members

    def _new_losses(self) -> list[Loss]:
        losses = self.membership.losses[self._losses_told :]
        self._losses_told += len(losses)
        return [loss for loss in losses if not loss.left]

    def _missing(self, loss: Loss) -> Missing:
        since = loss.since_s - (self._started_at or 0.0)
        return Missing(peer=loss.name, address=loss.address, since_s=since, why=loss.why, advice=loss.advice)

    def tell(self, event: EventName, *, about: str = "", why: str = "") -> None:
        """Write an event."""
        self._record(EventRecord(peer=self.name, time_s=self.elapsed_s, event=event, about=about, why=why))

    def _follow(self, view: View) -> None:
        """Tell of members that come and go as it happens, not only when the next round ends."""
        if self._started_at is None:
            return
        known, self._known = self._known, view
        for member in view.members:
            if known.member(member.id) is None and member.id != self.endpoint.id and known.started:
                self.tell("joined", about=member.name)
        for loss in self.membership.losses[self._events_told :]:
            self.tell("left" if loss.left else "lost", about=loss.name, why=loss.why.removeprefix("left: "))
        self._events_told = len(self.membership.losses)

    async def finish(self) -> None:
        """The run is over here: wait for the others, who may still need this peer."""
        await self.membership.finish()

    async def farewell(self) -> None:
        """Wait until nobody needs what this peer holds of the last round."""
        await self._farewell.say()

    async def leave(self, why: str) -> None:
        """Go before the run is over, when the others have let this peer go; they go on. There is nothing to drain: what
        they need of it they have, or `farewell` was not wished for, and who goes too acknowledges nothing any more."""
        await self.membership.leave(why)

    def close(self) -> None:
        """Stop everything at once."""
        self.membership.close()
        self.endpoint.abort()
