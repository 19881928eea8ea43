"""The roster: one peer's present knowledge of the other peers and of the view, and its links to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from ..channel import Channel
from ..transport import PeerId
from ..wire.frames import in_words
from .edge import Edge
from .invitation import Invitation
from .invites import Invites
from .messages import Anew, Introduce, Learned, Suspicion
from .places import Places
from .view import NOBODY, Gone, Member, Version, View
from .waiting import Waiting

_ANEW = "it joins anew"
TRY_FOR = 4
"""This many times the patience a peer tries to get something that it needs (a quorum, an entry, a state)."""


class Roster(Waiting):
    """The present view, and which of its members are gone (lost, suspected or joining anew), leaving or finished, as
    far as this peer knows. The listeners of `on_news` are called whenever a peer comes, goes or is lost."""

    def __init__(self, channel: Channel, me: Member, invitation: Invitation | None = None) -> None:
        super().__init__()
        self.me = replace(me, life=channel.endpoint.draw())
        self.view = NOBODY
        self.invites = Invites(channel, invitation, members=lambda: self.view.ids)
        self.base = Version(0, 0)
        """The version from which the view's members continue: some members have committed it."""
        self.given = False
        """Whether `base` existed before the run started, as a checkpoint's version does."""
        self.gone: dict[PeerId, Gone] = {}
        """Members and learners that this peer cannot work with: lost, suspected, or joining anew."""
        self.leaving: dict[PeerId, str] = {}
        """Members that have said that they leave, and the reason."""
        self.finished: set[PeerId] = set()
        self.newcomers: dict[PeerId, Introduce] = {}
        self.places = Places(channel.endpoint.patience_s)
        self.learned: dict[PeerId, Learned] = {}
        """Learners that will be members of the next view, and the version that each holds."""
        self.over: set[int] = set()
        """Lives (`Member.life`) that are over and have left no record (`ledger`): they never vote again."""
        self.capacities: dict[PeerId, int] = {}
        """Newly found capacities of members, for the next view."""
        self.apart: tuple[Edge, ...] = ()
        """Pairs of members that cannot reach each other, for the next view."""
        self.missed = self.suspect
        """Called with a member that this peer has lost or caught lying, and the reason."""
        self.addresses: dict[PeerId, str] = {}
        """Addresses of the other members; of the last known members when this peer is not a member."""
        self.on_news: list[Callable[[], None]] = []
        self._channel, self._endpoint = channel, channel.endpoint
        self._former: set[PeerId] = set()
        """Members that have said that they vote on behalf of a former life."""
        self._anew: set[PeerId] = set()
        """Members that join anew: a link to one of these is a new link."""
        self._old_links: set[PeerId] = set()
        """Former members whose link dates from the time when they were members."""
        channel.endpoint.on_lost.append(self._lost)

    @property
    def id(self) -> PeerId:
        return self.me.id

    @property
    def learns(self) -> bool:
        """Whether this peer is a learner: in the view, but not a member."""
        return self.id in self.view.everybody and self.id not in self.view.ids

    @property
    def others(self) -> list[PeerId]:
        """All members but this peer."""
        return [peer for peer in self.view.ids if peer != self.id]

    @property
    def living(self) -> list[PeerId]:
        """Members that may still vote, as far as this peer knows."""
        return [member.id for member in self.view.members if member.life not in self.over]

    @property
    def former(self) -> list[PeerId]:
        """Gone members that were restarted, still vote on behalf of their former life, and are not lost."""
        voters = self._former | {peer for peer, came in self.newcomers.items() if came.votes}
        return [peer for peer in self.gone if peer in voters and self._endpoint.is_lost(peer) is None]

    @property
    def near(self) -> list[PeerId]:
        """The members not apart from this peer in the view, itself if it is one, and the coordinator even if apart; in
        the view's order. Those `gone` or `leaving` are among them."""
        me, coordinator, view = self.id, self.coordinator, self.view
        return [peer for peer in view.ids if not view.are_apart(peer, me) or peer == coordinator]

    @property
    def alive(self) -> list[PeerId]:
        """Members of the view, this peer included, that are not `gone`, in the view's order."""
        return [peer for peer in self.view.ids if peer not in self.gone]

    @property
    def staying(self) -> list[PeerId]:
        """Members of the view, this peer included, that are neither `gone` nor `leaving`, in the view's order."""
        return [peer for peer in self.view.ids if self.stays(peer)]

    def stays(self, peer: PeerId) -> bool:
        """Whether a member is neither `gone` nor `leaving`."""
        return peer not in self.gone and peer not in self.leaving

    @property
    def coordinator(self) -> PeerId | None:
        """The most senior member that stays, which leads changes of the view. None: there is none."""
        return next((peer for peer in self.view.by_seniority if self.stays(peer)), None)

    @property
    def shrinking(self) -> bool:
        """Whether members that are gone or leaving should be removed by a next view. False when none stays."""
        return 0 < len(self.staying) < len(self.view.ids)

    def suspect(self, peer: PeerId, why: str) -> None:
        """Mark another member as gone, unless it is, and tell the coordinator. Once removed, it may join again."""
        if peer in self.others and peer not in self.gone:
            self.gone[peer] = Gone(why, asyncio.get_running_loop().time())
            self.news()

    def answers(self, peer: PeerId, *, former: bool) -> None:
        """Note that a member has answered: it is no longer `gone`, unless it joins anew. `former`: it was restarted,
        and votes on behalf of its former life; its vote counts, but it is `gone` for as long as the view holds."""
        if former and not (peer in self._former and peer in self.gone):
            self._former.add(peer)
            self.suspect(peer, _ANEW)
        elif not former and peer in self.gone and peer not in (*self.newcomers, *self._former):
            del self.gone[peer]
        else:
            return
        self.watch()
        self.notify()

    def is_silent(self, peer: PeerId, why: str) -> None:
        """Stop waiting for an answer of a member, in this life or on behalf of a former one: mark it as gone."""
        self.newcomers.pop(peer, None)
        self._former.discard(peer)
        self.suspect(peer, why)

    def _lost(self, peer: PeerId, why: str) -> None:
        self._old_links.discard(peer)
        if self._endpoint.has_ended(peer):
            self.life_is_over(peer)
        learner = peer in self.view.everybody and peer not in self.view.ids
        if learner and self.coordinator == self.id:
            self.gone.setdefault(peer, Gone(why, asyncio.get_running_loop().time()))
            self.news()
        elif not learner:
            (self.suspect if self.learns else self.missed)(peer, why)

    def life_is_over(self, peer: PeerId) -> None:
        """Record that the member `peer`, in the life that the view lists, will never vote again."""
        if (member := self.view.member(peer)) is not None:
            self.over.add(member.life)
            self.notify()

    def dismiss_lost(self) -> None:
        """Forget newcomers whose link was lost before they were let in; they may ask again."""
        for peer in [peer for peer in self.newcomers if self._endpoint.is_lost(peer) is not None]:
            del self.newcomers[peer]

    def news(self) -> None:
        """Tell the coordinator who is gone and who has come, choose the peers to watch, and call `on_news`."""
        self.watch()
        coordinator = self.coordinator
        if coordinator is not None and coordinator != self.id:
            for peer, gone in self.gone.items() if self.id in self.view.ids else ():
                self._channel.post(coordinator, Suspicion(self.view.generation, peer, in_words(gone.why)))
            for came in self.newcomers.values():
                self._channel.post(coordinator, came)
        for told in self.on_news:
            told()
        self.notify()

    def watch(self) -> None:
        """Choose the peers that heartbeats watch. The coordinator: all, newcomers too. Another member: the coordinator
        and the next in rank, or all while a member is gone, so that several deaths show at once. A member that has
        finished: all that have not. A learner: the coordinator. A peer in no view: none."""
        coordinator, near = self.coordinator or self.id, [peer for peer in self.near if peer not in self.gone]
        if self.learns:
            watched = {coordinator}
        elif self.id not in near:
            watched = set[PeerId]()
        elif self.id in self.finished:
            watched = set(near) - self.finished
        elif coordinator == self.id:
            watched = {*self.alive, *self.newcomers, *(one.id for one in self.view.learners if one.id not in self.gone)}
        elif self.gone:
            watched = set(near)
        else:
            watched = {near[(near.index(self.id) + 1) % len(near)], coordinator}
        self._channel.watch(watched - {self.id})

    def tell(self, message: object) -> None:
        """Post `message` to all other members and learners of the view."""
        for peer in self.view.everybody:
            if peer != self.id:
                self._channel.post(peer, message)

    def tell_former(self, peer: PeerId, message: object) -> None:
        """Post `message` to a former member, which may not know that it is none, unless it joins anew or has ended."""
        if peer not in self._anew and not self._endpoint.has_ended(peer):
            self._endpoint.retry(peer)
            self._channel.post(peer, message)

    # From view to view. When a peer has to join anew, and only then, both ends must open each of its links anew: a link
    # that ends between members loses messages, and makes the two suspect each other.

    def take(self, view: View, base: Version, *, given: bool, led: bool) -> None:
        """Go on to `view`, whose members continue from `base`; forget peers not in it. `given`: as in `Decree`. `led`:
        this peer proposed the view, so its suspicions are newer than the view and stay; otherwise they are cleared."""
        before, self.view, self.base, self.given = self.view, view, base, given
        self.invites.take(view)
        self.places.follow(view)
        self.waits_no_more()
        for peer in sorted(self._old_links):
            self._end_link(peer)  # this peer had a whole generation to hear that it is no member
        known = (*before.members, *before.learners)
        for peer in (one.id for one in known if not view.holds(one) and one.id != self.id):
            told = (led or peer in self.leaving) and peer not in self._anew and self._endpoint.is_lost(peer) is None
            if told and view.anybody(peer) is None:
                self._old_links.add(peer)  # the link stays open until the peer has heard that it is no member
            else:
                self._end_link(peer)
        self._anew.clear()
        self._former.clear()
        self.capacities.clear()
        self.newcomers = {peer: came for peer, came in self.newcomers.items() if not view.holds(came.member)}
        kept = {one.id for one in known if view.holds(one)}
        self.gone = {peer: gone for peer, gone in self.gone.items() if peer in kept and led}
        now = asyncio.get_running_loop().time()
        self.gone |= {peer: Gone(_ANEW, now) for peer in self.newcomers if peer in view.everybody}
        self.leaving = {peer: why for peer, why in self.leaving.items() if peer in kept}
        learners = {learner.id for learner in view.learners}
        learned = {peer: told for peer, told in self.learned.items() if peer in kept & learners}
        # A learner that came with the others' version, and has fetched nothing, must fetch the version they have now.
        self.learned = {peer: told for peer, told in learned.items() if told.took_s or told.version == base}
        self.finished &= set(view.ids)
        self.over &= {one.life for one in view.members}
        self.me = view.anybody(self.id) or self.me
        self.meet(view)

    def meet(self, view: View) -> None:
        """Learn the addresses of the members of `view` in place of those known before, and dial all peers in it."""
        others = [one for one in (*view.members, *view.learners) if one.id != self.id]
        self.addresses = {one.id: one.address for one in others if one.id in view.ids}
        for one in others:
            self._endpoint.dial(one.id, one.address)

    def retire(self) -> None:
        """Leave the view in order to join anew, and tell its peers; draw another life if this one was in the view."""
        addresses, in_it = self.addresses, self.view.holds(self.me)
        told = (*self.view.everybody, *(self.newcomers if self.coordinator == self.id else ()))
        for peer in dict.fromkeys(peer for peer in told if peer != self.id):
            self._channel.post(peer, Anew())  # else it would take the end of this link for a loss when we are let in
        self.leaving.clear()
        self.take(NOBODY, Version(0, 0), given=False, led=False)
        self.addresses = addresses
        self.newcomers.clear()
        self.failed = None
        if in_it:
            self.me = replace(self.me, life=self._endpoint.draw())
        self.watch()
        self.notify()

    def joins_anew(self, member: Member, *, votes: bool, heard: bool) -> None:
        """Note that the peer of `member` joins with a new life: it is `gone` until a later view has it. Not `votes`:
        its former life votes no more (`over`). Not `heard` over a new link: their old link ends."""
        if not votes:
            self.life_is_over(member.id)
        self._begins_anew(member.id, heard=heard)

    def _begins_anew(self, peer: PeerId, *, heard: bool) -> None:
        if not heard:  # its Anew may still be under way on the old link, and would undo its introduction
            self._end_link(peer)
        self._anew.add(peer)
        self._old_links.discard(peer)
        self.suspect(peer, _ANEW)

    def gave_up(self, peer: PeerId) -> None:
        """Record that `peer` has told (Anew) that it joins anew, and end the link on which it told so."""
        self._endpoint.forget(peer)
        self.newcomers.pop(peer, None)
        self.learned.pop(peer, None)
        self.life_is_over(peer)
        self._begins_anew(peer, heard=True)

    def _end_link(self, peer: PeerId) -> None:
        """From now on talk to `peer` over a new link only."""
        if peer not in self._anew or self._endpoint.is_lost(peer) is not None:
            self._endpoint.forget(peer)
        self._old_links.discard(peer)
