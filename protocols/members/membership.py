"""Membership: which peers are in the run, agreed generation by generation. Each generation has its view, the list of
members. These decide the next view (`view_change`), led by the coordinator, the most senior member that stays.
Newcomers get in by `admission`. Members leave by `departure`, or are lost (`edges`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..channel import Channel, Envelope
from ..testpoints import witness
from ..transport import PeerId
from .admission import Admission
from .attached import Attached, Standing
from .departure import Departure
from .edges import Edges
from .invitation import Invitation
from .invite_change import Inviting
from .learning import Learning, Unattached
from .ledger import Ledger, Store, Vote
from .messages import Stale, Welcome
from .neighbours import of_view
from .outsiders import Outsiders
from .quorum import Quorum
from .removals import Removals
from .roster import Roster
from .states import States
from .terms import Terms as Terms
from .view import Decided, Decree, Member, Version, View, dialable_of
from .view_change import Change


class Membership:
    """One peer's membership of a run. Without an attached conversation, every peer has the version (0, 0)."""

    knows_all = True

    def __init__(
        self,
        channel: Channel,
        me: Member,
        terms: Terms,
        store: Store | None = None,
        invitation: Invitation | None = None,
    ) -> None:
        """`me`: this peer, which gets a new `life`. `store` keeps its votes for its next process; None: they are not
        kept. `invitation`: the one with which this peer founds the run; None: there is none."""
        self.on_view: list[Callable[[View], None]] = []
        """Called with each view that this peer is in, after the attached conversation is told of it."""
        self.terms, self._channel = terms, channel
        roster = self._roster = Roster(channel, me, invitation)
        self._departure, quorum = Departure(channel, roster), Quorum(roster, terms.quorum)
        self._outsiders, self._ledger = Outsiders(channel, roster, expelled=self._on_expelled), Ledger(store)
        self._ledger.on_trouble.append(roster.tell_waiting)
        self._change = Change(
            channel, roster, self._ledger, terms, quorum=quorum, outsiders=self._outsiders,
            standing=lambda: self.standing, take=self._take,
        )  # fmt: skip
        self.learning = Learning(channel, roster, standing=lambda: self.standing, of_now=self._change.acceptor.of_now)
        self._attached: Attached = Unattached(roster, self.learning)
        self._admission = Admission(
            channel, roster, terms,
            standing=lambda: self.standing, latest=lambda: self._change.acceptor.latest, votes=lambda: self._former,
        )  # fmt: skip
        self._edges = Edges(
            channel, roster, enough=quorum.enough, renew=self._change.renew, of_now=self._change.acceptor.of_coordinator
        )
        self.lost = self._edges.lost
        """Reports a member that this peer cannot work with: it is removed, or the edge to it avoided."""
        self.suspect, self.hold_off = roster.suspect, self._admission.hold_off
        self.removals = Removals(channel, roster, self.hold_off)
        self.neighbours = of_view(roster, self.removals)
        self.inviting = Inviting(channel, roster, self._change.consider)
        if (former := self._ledger.former()) is not None:
            self._change.acceptor.go_on(former)
        self._former = former is not None
        """Whether this peer still votes on behalf of a former life."""
        self.states = States(roster, self._change, self._admission)

    @property
    def standing(self) -> Standing:
        """The versions of the attached conversation's state."""
        return self._attached.standing()

    def attach(self, conversation: Attached) -> None:
        """Ask `conversation` for the versions from now on, and tell it of each view before `on_view`."""
        self._attached = conversation

    @property
    def me(self) -> Member:
        """This peer as the view lists it, as a member or a learner. While it is in no view: as the last view listed it,
        or as it was constructed, with the life that it has drawn since."""
        return self._roster.me

    @property
    def view(self) -> View:
        return self._roster.view

    @property
    def failed(self) -> Exception | None:
        """The error that has ended this peer's part in the run; None: there is none (`RunMembers.failed`)."""
        return self._roster.failed

    @property
    def deserted(self) -> bool:
        """Whether each member, this peer included, leaves, has finished or has ended its process; True in no view."""
        gone = {*self._roster.leaving, *self._roster.finished}
        return all(peer in gone or self._channel.endpoint.has_ended(peer) for peer in self.view.ids)

    @property
    def finished(self) -> set[PeerId]:
        """The members, this peer too, that have finished their training and stay only until all others have."""
        return self._roster.finished

    @property
    def coordinator(self) -> PeerId | None:
        return self._roster.coordinator

    @property
    def hosts(self) -> tuple[PeerId, ...]:
        """The other members that can be dialled, as last known: any of them may let this peer in."""
        return dialable_of(self._roster.addresses)

    @property
    def held_off_s(self) -> float:
        """Seconds that this peer must still wait before the others let it in, by what they said; 0.0: none."""
        return self._admission.held_off_s

    @property
    def on_waiting(self) -> list[Callable[[str], None]]:
        """Functions, called with the reason when too few members answer, or the others do not let this peer in yet."""
        return self._roster.on_waiting

    @property
    def on_change(self) -> list[Callable[[], None]]:
        """Functions that `notify` calls before it tests the conditions that are waited for (`until`)."""
        return self._roster.on_change

    @property
    def learns(self) -> bool:
        """Whether this peer is a learner: in the view, but not a member."""
        return self._roster.learns

    @property
    def base(self) -> Version:
        """The version of the state from which the members of the present view continue."""
        return self._roster.base

    @property
    def settled(self) -> bool:
        """Whether this peer is a member that stays, of a view that has started and is not being changed."""
        me, view, roster = self._roster.me.id, self._roster.view, self._roster
        return view.started and not self._change.promised and me in view.ids and roster.stays(me)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, tested at once and on each `notify`, without limit. Raises the error of `failed`."""
        await self._roster.until(condition)

    async def at_least(self, count: int) -> None:
        """Wait until there are at least `count` neighbours. Raises as `until`."""
        await self.until(lambda: len(self.neighbours.now) >= count)

    def only_while(self, condition: Callable[[], bool]) -> contextlib.AbstractAsyncContextManager[None]:
        """Context whose body is cancelled, without an error, once `condition` fails. Raises the error of `failed`."""
        return self._roster.only_while(condition)

    async def change_within(self, seconds: float) -> None:
        """Wait for the next `notify`, but at most `seconds`. Returns in both cases."""
        await self._roster.change_within(seconds)

    def notify(self) -> None:
        """Call the functions in `on_change`, and test all conditions that are waited for: something has changed."""
        self._roster.notify()

    def can_spare(self, peer: PeerId, *, reserve: bool = True) -> bool:
        """Whether the staying members can decide views without `peer`. `reserve`: only if more than two are left then;
        ignored where `Terms.quorum` is fixed."""
        left, quorum = [other for other in self._roster.staying if other != peer], self._change.quorum
        return quorum.enough(left) and (not reserve or len(left) > 2 or quorum.fixed is not None)

    @property
    def leaders(self) -> tuple[PeerId, ...]:
        """The coordinator and its successor: the two most senior members that stay; fewer if fewer stay."""
        return tuple(peer for peer in self.view.by_seniority if self._roster.stays(peer))[:2]

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Context of an exchange that a change of the view would cancel: newcomers wait for its end (`Occasion`)."""
        return self._change.occasion.busy()

    def renew(self) -> None:
        """As coordinator, now or later in this view, have a new view decided although no member comes or goes."""
        self._change.renew()

    def assess(self, capacities: Mapping[PeerId, int]) -> None:
        """As `renew`, for a view with the `capacities` (`Attributes.capacity`) that were found for these members."""
        self._roster.capacities = dict(capacities)
        self._change.renew()

    async def vote(self, version: Callable[[], Version]) -> None:
        """Write to the store, if any, that this peer votes for `version()`; return when that is done or failed."""
        if self._ledger.kept:
            await self._ledger.on_record(Vote(self.me.life, self.view.generation, version()))

    # Coming and going

    def found(self) -> None:
        """Found a run: its view of generation 1 has this peer alone, and has started if `Terms.founders` is 1."""
        me, invitation = replace(self.me, since=1), self.inviting.present
        view = View(1, (me,), self.terms.founders <= 1, invitation=invitation)
        self._take(Decree(view, self._attached.standing().state, (self.me.id,), (), given=True), self.me.id)

    async def knock(self, contact: PeerId) -> Welcome:
        """Leave any view, whose members are told, and ask `contact`, which the endpoint can reach, whether this peer
        may join. Returns the contact's view and version. Raises JoinRefused when all members would refuse, and PeerLost
        when another member may be asked (`Admission.ask`)."""
        self._change.stop()
        self._edges.stop()
        if self.view.generation:
            self._ledger.strike()  # before the others are told: this life votes no more
            self._former = False
            self._roster.retire()
            self._change.begin(None)
        if contact in self._roster.addresses:
            self._channel.endpoint.dial(contact, self._roster.addresses[contact])
        self._change.hearsay.contact = contact
        return await self._admission.ask(contact, ready=False)

    async def join(self, contact: PeerId) -> None:
        """Ask `contact` to introduce this peer; the view that has it comes later (Install). Raises as `knock`."""
        await self._admission.ask(contact, ready=True)

    def leave(self, why: str) -> asyncio.Future[None]:
        """Leave the run, and tell the others `why`. The future is done when this peer may go (`Departure.leave`)."""
        return self._departure.leave(why)

    def take_back(self, contact: PeerId | None) -> None:
        """Make this peer, which has left, join again, through a member that can be dialled or `contact`."""
        self._departure.take_back(contact)

    async def finish(self) -> None:
        """Tell the others that this peer has finished, and wait until they have too (`Departure.finish`)."""
        await self._departure.finish(lambda: self._change.leads)

    def close(self) -> None:
        """Cancel all timers and changes under way; the future of `leave` is done. Other peers are told nothing."""
        self._edges.stop()
        self._change.stop()
        self._ledger.close()
        self._departure.go()

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether a message counts: its sender is a member, and it names the `generation` of the present view, which is
        not being changed. A sender outside the view that names a former generation is told that it is no member. A
        member that names a later one may be asked for its view (`Reminders`)."""
        if envelope.sender in self.view.ids:
            self._change.reminders.heard(envelope.sender, generation)
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
            learners, senior = tuple(one.id for one in view.learners), next(iter(view.by_seniority), "")
            witness(Decided(view.generation, view.ids, learners, view.started, senior))
        if not view.holds(self.me) and not (self.me.id in roster.leaving and view.anybody(self.me.id) is None):
            if before.holds(self.me):
                contact = next((peer for peer in (teller, *view.ids) if peer in view.ids), teller)
                self._admission.overrule(decree)
                self._outsiders.expel(Stale(view.generation, contact, view.everybody))
            elif self._former:
                self._change.acceptor.follow(decree)
            return  # otherwise it concerns a former life, of which this life knows nothing
        self.removals.follow(decree, led=led)
        new = {one.id for one in (*view.members, *view.learners) if not before.holds(one)}
        self._outsiders.begin()
        roster.take(view, decree.base, given=decree.given, led=led)
        self._admission.turn_away()
        self._former = False
        self._change.begin(decree)
        self._edges.begin(view)
        if view.holds(self.me):
            if not led:
                self._change.reminders.follow(decree, teller, new)
            self._departure.tell_again()
            self._attached.installed(decree)
            for listener in self.on_view:
                listener(view)
        roster.news()

    def tell_waiting(self, why: str) -> None:
        """Report to `on_waiting` that this peer waits, and `why`; at most once in 30 s."""
        self._roster.tell_waiting(why)
