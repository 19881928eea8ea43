"""A peer: its endpoint, its membership, its conversation and its records. The peers of a task file, of a script and of
a simulation are all assembled here; `training.loop` drives them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

import torch

from ..protocols.channel import Channel
from ..protocols.clock import RunClock
from ..protocols.conversation import Came, Outcome
from ..protocols.endpoint import Endpoint
from ..protocols.link_quality.reachability import Prober
from ..protocols.members.hello import Greeter
from ..protocols.members.port import RunMembers, Way
from ..protocols.members.terms import Terms
from ..protocols.members.view import Attributes, Member
from ..protocols.meter import Meter
from ..protocols.relay.ends import Ends
from ..protocols.relay.messages import RELAY
from ..protocols.relay.relay import Relay
from ..protocols.stalls.messages import STALLS
from ..protocols.stalls.stalls import Stalls
from ..protocols.transport import PeerId
from .checkpoints.checkpoint import Snapshot
from .conversations.registry import Setup, conversation
from .memberships import made
from .place import Place
from .records.columns import Noun, noun
from .records.comings import Comings
from .records.event_names import EventName
from .records.metrics import scales_told
from .records.records import EventRecord, ExchangeRecord, Record
from .records.unrecorded import Unrecorded
from .run_settings.settings import Settings
from .settings.edge import BUDGET_LEFT, begin_with
from .settings.link_text import parse_rate
from .task.constants import Agreement
from .task.facts import Facts


class Peer:
    """One peer of a run. `record` is called with every exchange and event. Times in these are seconds since the run
    began (`clock`), which count what the run took before it was resumed."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: Settings,
        place: Place,
        facts: Facts,
        *,
        steps: int | None = None,
        resumed: Snapshot | None = None,
        record: Callable[[Record], None] = lambda record: None,
    ) -> None:
        """`facts`: the properties of the peer's replica; `steps`: local steps of the whole run, None when a script
        decides; `resumed`: the checkpoint from which the replica was restored. Raises ValueError when the settings do
        not fit the replica or the checkpoint."""
        self.endpoint, self.settings = endpoint, settings
        self.clock = RunClock(0.0 if resumed is None else float(resumed.numbers["elapsed_s"]), place.former_s)
        self.membership, way = _membership(endpoint, settings, place, facts)
        self.stalls = Stalls(Channel(endpoint, STALLS), self.membership, Meter(), lambda: self.conversation.version)
        self.stalls.patience_s = settings.compute_patience_s
        if resumed is not None:
            begin_with(endpoint.budget, resumed.numbers)
        self._record, self._place = record, place
        self._facts = replace(facts, vector=torch.empty(0), tables={})  # the first model need not be kept
        setup = Setup(
            endpoint=endpoint,
            membership=self.membership,
            way=way,
            memories=place.memories,
            stalls=self.stalls,
            clock=self.clock,
            settings=settings,
            facts=facts,
            steps=steps,
            resumed=resumed,
        )
        self.conversation = conversation(settings).build(setup)
        if missing := self.conversation.needs - facts.can:
            what = " and ".join(sorted(missing))
            raise ValueError(f"--protocol {settings.protocol.name} asks for {what}, which this replica cannot do")
        self._comings = Comings(endpoint, self.membership, self.clock, self.tell)
        self.membership.on_view.append(self._comings.follow)
        self.stalls.on_stall.append(self._comings.stalled)
        Greeter(endpoint, run=place.run, settings=settings.agreed_json())
        Prober(endpoint, lambda: self.membership.view.members)
        _relaying(endpoint, self.membership, settings.relay_limit)
        self.unrecorded = Unrecorded()
        self._told: set[str] = set()

    @property
    def name(self) -> str:
        """This peer's name in the run."""
        return self._place.name

    @property
    def noun(self) -> Noun:
        """The word for an exchange in texts: "round", or "exchange" where peers do not exchange in common rounds."""
        return noun(conversation(self.settings).columns)

    @cached_property
    def own_model(self) -> bool:
        """Whether this peer's model is its own, because the peers agree on none."""
        return self.conversation.position().own_model

    def came(self, how: Came) -> None:
        """Write the event `how`, such as "joined", by which this peer has entered the run. If its place wants that
        (`Place.names_members`), write then an event "present" for each other member. From now on events about other
        members are written, too. To be called once, when this peer has entered for the first time."""
        self._comings.begin()
        self.tell(how, why=f"its connection is shaped to {self._place.link}" if self._place.link else "")
        if self._place.names_members:
            self._comings.name_members()

    def note(self, outcome: Outcome) -> ExchangeRecord:
        """Write the record of a finished exchange, with the bytes that this peer sent and received since its last
        record of one, and return it. Also writes an event if this peer was the only one in this exchange and not in the
        one before, and no other member is there."""
        waited_for, awaited_s = self.stalls.evaluation_awaited(outcome.version, outcome.waited_for, outcome.wait_s)
        in_all = (self.endpoint.bytes_sent, self.endpoint.bytes_received, self.conversation.bytes_shared)
        since = self.unrecorded.take(outcome, *in_all)
        record = ExchangeRecord(
            peer=self.name,
            version=outcome.version,
            step=outcome.step,
            time_s=self.clock.elapsed_s,
            loss=outcome.loss,
            compute_s=outcome.compute_s,
            wait_s=outcome.wait_s,
            evaluation_wait_s=awaited_s,
            transfer_s=outcome.transfer_s,
            hidden_s=outcome.hidden_s,
            evaluate_s=outcome.evaluate_s,
            bytes_sent=since.bytes_sent,
            bytes_received=since.bytes_received,
            bytes_shared=since.bytes_shared,
            steps_before=since.steps_before,
            received_from=self._by_name(outcome.received_from),
            counts=dict(outcome.counts),
            model_bytes=outcome.model_bytes,
            steps_per_s=outcome.steps / outcome.compute_s if outcome.compute_s > 0 else 0.0,
            members=outcome.members,
            missing=self._comings.missing(),
            waited_for="" if waited_for is None else self._comings.name_of(waited_for),
            steps_left=outcome.steps_left,
            made_s=None if outcome.at_s is None else outcome.at_s - self.clock.began_s,
            caught_up=outcome.caught_up,
            metrics=dict(outcome.metrics),
            metric_scales=self.scales(outcome.metrics),
            own_model=self.own_model,
            details=dict(outcome.details),
        )
        self._record(record)
        self._comings.were_there(outcome.members)
        return record

    def budget_left(self) -> dict[str, float]:
        """The entry of a checkpoint with the number of bytes that are left of this peer's daily budget; empty for a
        peer without one."""
        budget = self.endpoint.budget
        left = None if budget is None else budget.day_bytes_left
        return {} if left is None else {BUDGET_LEFT: left}

    def _by_name(self, counts: Mapping[PeerId, int]) -> dict[str, int]:
        found = Counter[str]()
        for peer, count in counts.items():
            found[self._comings.name_of(peer)] += count
        return dict(found)

    def scales(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """By name, the scale of each of `metrics` as the task declares it, e.g. "higher %"; where it declares none,
        that is "higher %" for the accuracy and "" for any other. The values of `metrics` do not matter."""
        return scales_told(metrics, self._facts.scales)

    def stopped(self, steps_made: int) -> None:
        """Write, if the run has begun, the event that this peer was stopped by its user, with the local steps that no
        record of an exchange has counted. `steps_made`: all that its process has taken. A second call does nothing."""
        if self.clock.started and "stopped" not in self._told:
            self._told.add("stopped")
            steps, compute_s = self.unrecorded.at_end(steps_made, asyncio.get_running_loop().time())
            self.tell("stopped", steps=steps, compute_s=compute_s)

    def tell(
        self,
        event: EventName,
        *,
        about: str = "",
        why: str = "",
        work: str = "",
        key: str = "",
        about_role: str = "",
        steps: int = 0,
        compute_s: float = 0.0,
    ) -> None:
        """Write an event to this peer's records, with the present time and view. `about`: the name of the peer that it
        concerns ("": this peer); `why`: the reason; `work`: the work of a stalled peer; `key`, `about_role`: the public
        key and the role of `about`; `steps`, `compute_s`: as in `EventRecord`."""
        record = EventRecord(
            peer=self.name,
            time_s=self.clock.elapsed_s,
            event=event,
            about=about,
            why=why,
            work=work,
            generation=self.membership.view.generation,
            key=key,
            role=self._place.role,
            about_role=about_role,
            steps=steps,
            compute_s=compute_s,
        )
        self._record(record)

    def tell_once(self, event: EventName, why: str) -> None:
        """Write an event for the reason `why`, unless this method has written one of that name before."""
        if event not in self._told:
            self._told.add(event)
            self.tell(event, why=why)

    def close(self) -> None:
        """Stop the conversation, the membership and the endpoint at once, without telling the other peers. Records and
        the replica are not closed: they are the caller's."""
        self.conversation.close()
        self.stalls.close()
        self.membership.close()
        self.endpoint.abort()


def _relaying(endpoint: Endpoint, membership: RunMembers, limit: str | None) -> None:
    """If this peer cannot be dialled, have relays carry its streams; else make it a relay for others. `limit`: the most
    bytes a second that it carries from each of them, as text; None: no limit."""

    def outbound() -> set[PeerId]:
        view = membership.view
        return {one.id for one in (*view.members, *view.learners) if not one.dialable}

    def relays(far: PeerId) -> list[PeerId]:
        view, ends = membership.view, (membership.me.id, far)
        return [one.id for one in view.members if one.dialable and not any(view.are_apart(one.id, end) for end in ends)]

    channel = Channel(endpoint, RELAY)
    if endpoint.pipes is None:
        Relay(channel, outbound, None if limit is None else parse_rate(limit))
    else:
        Ends(channel, endpoint.pipes, relays)


def _membership(endpoint: Endpoint, settings: Settings, place: Place, facts: Facts) -> tuple[RunMembers, Way]:
    agreement = facts.agreement or Agreement.on(facts.layout)
    site = "" if settings.own.sites_need() else place.site
    own = Attributes(role=place.role, site=site, data_shard=place.data_shard)
    machine = "" if settings.edge else endpoint.machine  # shared memory is faster, and takes several models more
    me = Member(endpoint.id, place.name, endpoint.address, own, 0, machine)
    terms = Terms(
        run=place.run,
        layout=agreement.digest,
        model=f"{agreement.words} (peer {place.name})",
        founders=settings.founders,
        servers=settings.own.server_count(),
        source=facts.source,
        quorum=settings.quorum,
        give_up_after_s=settings.give_up_after_s,
        ends_together=conversation(settings).ends_together,
        trains_on=conversation(settings).trains_on,
    )
    return made(settings.own.membership_kind(), endpoint, me, terms, place.store, place.invitation)
