"""Membership: who takes part, agreed generation by generation.

Each generation has its view. In `view_change` its members decide the next view, led by the coordinator, the most senior
member that stays; `admission` lets newcomers in. This file puts these together with the rest: how members leave (Leave,
Finished), how the coordinator hears of a lost member (Suspicion), and the handling of messages of other generations: a
sender that is no member any more is told so (Stale), joins again and catches up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..channel import Channel, Envelope
from ..testpoints import witness
from ..transport import PeerId
from .admission import Admission
from .admission import JoinRefused as JoinRefused
from .departure import Departure
from .edges import Edges
from .invitation import Invitation
from .inviting import Inviting
from .learning import Learning
from .ledger import Ledger, Store, Vote
from .losses import Loss as Loss
from .losses import Losses
from .messages import Stale, Welcome
from .outsiders import Outsiders
from .quorum import Quorum
from .roster import Expelled as Expelled
from .roster import MembershipError as MembershipError
from .roster import NoQuorum as NoQuorum
from .roster import Roster
from .roster import Standing as Standing
from .states import States
from .view import Decided, Decree, Member, Version, View
from .view_change import Change


class Membership:
    """One peer's membership. `standing` returns its state's versions; `installed` is called with each decree."""

    def __init__(
        self,
        channel: Channel,
        me: Member,
        *,
        run: str,
        layout: str,
        model: str,
        founders: int,
        quorum: int | None,
        standing: Callable[[], Standing],
        installed: Callable[[Decree], None],
        give_up_after_s: float | None = None,
        store: Store | None = None,
        invitation: Invitation | None = None,
    ) -> None:
        """`run`: only peers of the same run meet. `layout`, `model`: the layout's digest and description.
        `founders`: how many gather before the first round. `quorum`: how many may go on, None for more than half.
        `installed` gets the decree of each view. `give_up_after_s`: how long to wait for members out of reach, where
        too few are left to decide anything; None: without end. `store`: keeps the promises that bind a later life.
        `invitation`: the invite of a run that this peer founds."""
        self.give_up_after_s = give_up_after_s
        self._channel, self._founders, self._standing, self._installed = channel, founders, standing, installed
        roster = self._roster = Roster(channel, me, invitation)
        self._departure, self._quorum = Departure(channel, roster), Quorum(roster, quorum)
        self._outsiders = Outsiders(channel, roster, self._quorum, expelled=self._on_expelled)
        self._ledger = Ledger(store)
        self._ledger.on_trouble.append(roster.tell_waiting)
        self._change = Change(
            channel,
            roster,
            self._ledger,
            founders=founders,
            quorum=self._quorum,
            outsiders=self._outsiders,
            give_up_after_s=give_up_after_s,
            standing=standing,
            take=self._take,
        )
        self.learning = Learning(channel, roster, standing=standing, of_now=self._change.acceptor.of_now)
        self._admission = Admission(
            channel,
            roster,
            run=run,
            layout=layout,
            model=model,
            standing=standing,
            latest=lambda: self._change.acceptor.latest,
            votes=lambda: self._former,
        )
        self._edges = Edges(
            channel,
            roster,
            enough=self._quorum.enough,
            renew=self._change.renew,
            of_now=self._change.acceptor.of_now,
        )
        self.lost = self._edges.lost
        """Call it with a member that this peer cannot work with: the member is removed, or the edge to it avoided."""
        self.suspect, self.hold_off = roster.suspect, self._admission.hold_off
        self.losses = Losses(channel, roster, self.hold_off)
        self.inviting = Inviting(channel, roster, self._change.consider)
        if (former := self._ledger.former()) is not None:
            self._change.acceptor.go_on(former)
        self._former = former is not None
        """Whether this peer still votes on behalf of a former life."""
        self.states = States(roster, self._change, self._admission)

    @property
    def me(self) -> Member:
        """This peer, as the view has it."""
        return self._roster.me

    @property
    def view(self) -> View:
        return self._roster.view

    @property
    def failed(self) -> Exception | None:
        """Why this peer cannot go on as it is."""
        return self._roster.failed

    @property
    def deserted(self) -> bool:
        """Whether all members are gone for good: each has said that it leaves or has finished, or has ended."""
        gone = {*self._roster.leaving, *self._roster.finished}
        return all(peer in gone or self._channel.endpoint.has_ended(peer) for peer in self.view.ids)

    @property
    def finished(self) -> set[PeerId]:
        """Members that have committed the last round."""
        return self._roster.finished

    @property
    def coordinator(self) -> PeerId | None:
        return self._roster.coordinator

    @property
    def hosts(self) -> tuple[PeerId, ...]:
        """The other members, or the last known members when this peer is none itself: any of them may let it in."""
        return tuple(self._roster.addresses)

    @property
    def held_off_s(self) -> float:
        """Seconds for which the others do not let this peer in yet, by what they said."""
        return self._admission.held_off_s

    @property
    def on_waiting(self) -> list[Callable[[str], None]]:
        """Called with the reason when too few members answer to go on, or when they do not let this peer in yet."""
        return self._roster.on_waiting

    @property
    def learns(self) -> bool:
        """Whether this peer is a learner: in the view, but not a member."""
        return self._roster.learns

    @property
    def base(self) -> Version:
        """The version that the present view goes on from."""
        return self._roster.base

    @property
    def settled(self) -> bool:
        """Whether this peer is a member of a view that has started and is not being changed."""
        me, roster = self.me.id, self._roster
        return self.view.started and not self._change.promised and me in self.view.ids and roster.stays(me)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, tested again on each `notify`. Raises the error that makes waiting hopeless."""
        await self._roster.until(condition)

    def only_while(self, condition: Callable[[], bool]) -> contextlib.AbstractAsyncContextManager[None]:
        """Cancel the body as soon as `condition` does not hold. Raises the error that makes going on hopeless."""
        return self._roster.only_while(condition)

    async def change_within(self, seconds: float) -> None:
        """Wait for the next `notify`, but at most `seconds`."""
        await self._roster.change_within(seconds)

    def notify(self) -> None:
        """Something that a condition may depend on has changed."""
        self._roster.notify()

    def can_spare(self, peer: PeerId, *, reserve: bool = True) -> bool:
        """Whether the staying members can go on without `peer` and, with `reserve`, could still lose another one."""
        left, quorum = [other for other in self._roster.staying if other != peer], self._quorum
        return quorum.enough(left) and (not reserve or len(left) > 2 or quorum.fixed is not None)

    @property
    def leaders(self) -> tuple[PeerId, ...]:
        """The coordinator and its successor: the two most senior members that stay."""
        return tuple(peer for peer in self.view.by_seniority if self._roster.stays(peer))[:2]

    def averaging(self) -> contextlib.AbstractContextManager[None]:
        """While a round is averaged here: see `Occasion`."""
        return self._change.occasion.averaging()

    def renew(self) -> None:
        """Have the next generation decided although no member comes or goes: the members disagree about a result."""
        self._change.renew()

    def learn(self, bandwidths_Bps: Mapping[PeerId, int]) -> None:
        """Have the next generation decided, as all members profit from knowing these bandwidths."""
        self._roster.bandwidths_Bps = dict(bandwidths_Bps)
        self._change.renew()

    async def vote(self, version: Callable[[], Version]) -> None:
        """Return when this peer's vote for `version` is on record, if votes are kept at all."""
        if self._ledger.kept:
            await self._ledger.on_record(Vote(self.me.life, self.view.generation, version()))

    # Coming and going

    def found(self) -> None:
        """Begin a new run with this peer as its first member."""
        me, invitation = replace(self.me, since=1), self.inviting.present
        view = View(1, (me,), self._founders <= 1, invitation=invitation)
        self._take(Decree(view, self._standing().state, (self.me.id,), (), given=True), self.me.id)

    async def knock(self, contact: PeerId) -> Welcome:
        """Leave any view and ask `contact`, which the endpoint can reach, whether this peer may join. Raises
        JoinRefused, or PeerLost when another member may be asked."""
        self._change.stop()
        self._edges.stop()
        if self.view.generation:
            self._ledger.strike()  # before the others are told: this life votes no more
            self._former = False
            self._roster.retire()
            self._change.begin(None)
        if contact in self._roster.addresses:
            self._channel.endpoint.dial(contact, self._roster.addresses[contact])
        return await self._admission.ask(contact, ready=False)

    async def join(self, contact: PeerId) -> None:
        """Ask `contact` to be let in. Install brings the view with this peer later. Raises the same as `knock`."""
        await self._admission.ask(contact, ready=True)

    def leave(self, why: str) -> asyncio.Future[None]:
        """Go of one's own will: see `Departure.leave`."""
        return self._departure.leave(why)

    async def finish(self) -> None:
        """The run is over here: see `Departure.finish`."""
        await self._departure.finish(lambda: self._change.leads)

    def close(self) -> None:
        self._edges.stop()
        self._change.stop()
        self._ledger.close()
        self._departure.go()

    # From generation to generation

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether a message of `generation` counts. A sender that is no member any more is told so."""
        if envelope.sender in self.view.ids:
            return generation == self.view.generation and not self._change.promised
        self._outsiders.refuse(envelope.sender, generation)
        return False

    def _on_expelled(self) -> None:
        self._change.stop()
        self._departure.go()

    def _take(self, decree: Decree, teller: PeerId) -> None:
        """The decree holds: go on to its view."""
        view, before, roster, led = decree.view, self.view, self._roster, teller == self.me.id
        if led:
            witness(Decided(view.generation, view.ids))
        if not view.holds(self.me) and not (self.me.id in roster.leaving and view.anybody(self.me.id) is None):
            if before.holds(self.me):
                contact = next((peer for peer in (teller, *view.ids) if peer in view.ids), teller)
                self._admission.overrule(decree)
                self._outsiders.expel(Stale(view.generation, contact, view.everybody))
            elif self._former:
                self._change.acceptor.follow(decree)
            return  # otherwise it concerns a former life, of which this life knows nothing
        self.losses.follow(decree, led=led)
        new = {one.id for one in (*view.members, *view.learners) if not before.holds(one)}
        self._outsiders.begin()
        roster.take(view, decree.base, given=decree.given, led=led)
        self._admission.turn_away()
        self._former = False
        self._change.begin(decree)
        self._edges.begin(view)
        if view.holds(self.me):
            if not led:
                self._change.pass_on(decree, new)
            self._departure.tell_again()
            self._installed(decree)
        roster.news()

    def tell_waiting(self, why: str) -> None:
        """Report that this peer waits, and `why`: at once, and then every 30 s."""
        self._roster.tell_waiting(why)
