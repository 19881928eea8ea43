"""Hearsay: a peer is told of a later view, and checks that with other peers before it goes on to that view. A decree is
the decision on a view; it holds once a quorum has adopted it.

A member takes a view if it has adopted that decree, its proposer says that it holds (`view_change`), and enough others
tell of the same decree (`echoes`): as a rule their echoes are there by then. In any other case it asks the members of
the view that it knows (Confirm). It goes on when half of those that it reaches, and at least two of them (one, where it
reaches one alone), hold the later view; or when more than half of its view, and two others, and enough (`echoes`) have
adopted the decree. A learner does the same. A newcomer believes the contact that it came by, which it trusts anyway. A
message that the others have a view without this peer (Stale) is checked in the same way. Where too few members are left
to decide a view, one member's word is enough, because joining anew then costs nothing.

Cost: none for a member that has adopted the decree and has the others' echoes; otherwise two small messages for each
member that is asked (`echoes.partners`), and a trip. A member that does not hold the decree yet answers again when it
does.
On failure: the questions are asked again once an interval; a member that does not answer for two patiences is not
waited for. A claim that is not confirmed within 4 patiences is forgotten, until this peer is told of it again.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ..channel import Channel, Envelope
from ..limits import VIEW_MEMBERS_MAX
from ..testpoints import sometimes, witness
from ..transport import PeerId
from .acceptor import Acceptor
from .echoes import enough_of, mark_of, partners
from .messages import Confirm, Confirmed, Install, Restarted, Stale
from .outsiders import Outsiders
from .quorum import Quorum
from .roster import TRY_FOR, Roster
from .view import Believed, Decree, View

_PROMPT = 8
_NO_VIEW, _NO, _ADOPTED, _HOLDS = range(4)
_WITHOUT_ME = 0
"""Used in place of a decree's mark in questions whether a later view is without this peer."""


@dataclass(slots=True)
class _Claim:
    """A view of which this peer was told. `hold`: the peers that say that it holds; `adopted`: that they have adopted
    its decree, and have told of no other since. `since_s`: when it was told first, on the loop's clock."""

    told: Decree | Stale
    since_s: float
    hold: set[PeerId] = field(default_factory=set)
    adopted: set[PeerId] = field(default_factory=set)

    @property
    def generation(self) -> int:
        return self.told.view.generation if isinstance(self.told, Decree) else self.told.generation


class Hearsay:
    """One peer's side of hearsay: it asks others about the views that it was told of, and answers their questions.
    `take` is called with a decree that was confirmed, and with a peer that said that it holds."""

    def __init__(
        self,
        channel: Channel,
        roster: Roster,
        acceptor: Acceptor,
        quorum: Quorum,
        outsiders: Outsiders,
        take: Callable[[Decree, PeerId], None],
    ) -> None:
        self.contact: PeerId | None = None
        """The peer through which this one asks to be let in, and whose word it believes; None: there is none."""
        self._channel, self._roster, self._acceptor, self._quorum = channel, roster, acceptor, quorum
        self._outsiders, self._take = outsiders, take
        self._claims: dict[int, _Claim] = {}
        self._asked_s: dict[PeerId, float] = {}
        """When each member was asked first and has not answered since, on the loop's clock."""
        self._prompted = Counter[PeerId]()
        """How often each peer's word was followed by questions at once, since they were asked again last."""
        self._timer: asyncio.TimerHandle | None = None
        self._askers: dict[PeerId, int] = {}
        """Peers that have asked for a decree which does not hold here yet, and its mark."""
        acceptor.echoes.on_echo.append(self._on_echo)
        channel.on(Install, self._on_install)
        channel.on(Stale, self._on_stale)
        channel.on(Confirm, self._on_confirm)
        channel.on(Confirmed, self._on_confirmed)

    def begin(self, decree: Decree | None) -> None:
        """Start afresh in the view of `decree`, to which the roster has gone on, and answer the peers that have asked
        about it. None: this peer has given up its view, to join anew, and drops all reports of views. Else reports of
        later views are kept: they may arrive before this peer hears of the present view, and those who sent them do not
        repeat them."""
        known = math.inf if decree is None else decree.view.generation
        later = {mark: claim for mark, claim in self._claims.items() if claim.generation > known}
        self.stop()
        self._claims = later
        if later:
            self._again()
        if self._askers and decree is not None:
            mark = mark_of(decree)
            for peer in [peer for peer, asked in self._askers.items() if asked == mark]:
                self._channel.post(peer, Confirmed(mark, _HOLDS))
        self._askers.clear()

    def stop(self) -> None:
        """Forget the views that this peer was told of, and ask no more about them."""
        self._claims.clear()
        self._asked_s.clear()
        self._prompted.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def of_another(self, decree: Decree) -> set[PeerId]:
        """The members that say that another decree of the generation of `decree` holds."""
        others = set[PeerId]()
        for claim in self._claims.values():
            if isinstance(claim.told, Decree) and claim.generation == decree.view.generation and claim.told != decree:
                others |= claim.hold
        return others

    # As the one that was told

    def _on_install(self, envelope: Envelope) -> None:
        decree: Decree = envelope.message.decree
        roster, teller = self._roster, envelope.sender
        roster.view.check_sense(decree.view.generation)
        self._tell_restarted(teller, decree.view)
        if not roster.view.may_precede(decree.view.generation):
            return
        if self._outsiders.is_learner(teller) and not self._quorum.enough(roster.alive):
            self._take(decree, teller)
        elif self._knows(teller):
            self._hear(mark_of(decree), decree, teller)

    def _tell_restarted(self, teller: PeerId, told: View) -> None:
        """If the view `told` counts on a former life of this peer, for which it does not vote, tell the teller, which
        is a member there: it may not have had a link to that life, and then it cannot notice that it is over."""
        former = told.anybody(self._roster.id)
        if former is None or teller not in told.ids or self._roster.view.anybody(teller) is not None:
            return
        if former.life != self._roster.me.life and not self._acceptor.speaks_for(former):
            sometimes("a member counted on a life that was over before it came")
            self._channel.post(teller, Restarted(former.life))

    def _on_stale(self, envelope: Envelope) -> None:
        stale: Stale = envelope.message
        roster, teller = self._roster, envelope.sender
        roster.view.check_sense(stale.generation)
        behind = roster.id in roster.view.everybody and roster.view.may_precede(stale.generation)
        if behind and roster.id not in stale.members and roster.failed is None:
            if self._outsiders.is_learner(teller) and not self._quorum.enough(roster.alive):
                self._outsiders.expel(stale)
            elif self._knows(teller):
                self._hear(_WITHOUT_ME, stale, teller)

    def _knows(self, teller: PeerId) -> bool:
        """Whether this peer's word counts: it is a member as far as this one knows. An invite is enough to become a
        learner, so a learner is heard only where too few members are left to decide a view."""
        return teller in self._roster.addresses or teller in self._roster.view.ids

    def _hear(self, mark: int, told: Decree | Stale, teller: PeerId) -> None:
        for claim in self._claims.values():
            claim.hold.discard(teller)  # each peer has one word
        self._claims = {known: claim for known, claim in self._claims.items() if claim.hold or known == mark}
        new = mark not in self._claims
        claim = self._claims.setdefault(mark, _Claim(told, asyncio.get_running_loop().time()))
        claim.hold.add(teller)
        self._asked_s.pop(teller, None)
        if not self._settled(mark, claim):
            self._prompted[teller] += new
            if new and self._prompted[teller] <= _PROMPT:
                self._ask(mark)
            if self._timer is None:
                self._again()

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._channel.endpoint.interval_s, self._tick)

    def _tick(self) -> None:
        self._timer, now = None, asyncio.get_running_loop().time()
        self._prompted.clear()
        until_s = TRY_FOR * self._channel.endpoint.patience_s
        self._claims = {mark: claim for mark, claim in self._claims.items() if now < claim.since_s + until_s}
        for mark, claim in list(self._claims.items()):
            if self._settled(mark, claim):
                return
            self._ask(mark)
        if self._claims:
            self._again()

    def _ask(self, mark: int) -> None:
        now = asyncio.get_running_loop().time()
        for peer in self._members():
            if peer not in self._claims[mark].hold and self._channel.endpoint.is_lost(peer) is None:
                self._asked_s.setdefault(peer, now)
                self._channel.post(peer, Confirm(self._roster.view.generation, mark))

    def _members(self) -> list[PeerId]:
        """The members that are asked."""
        return partners(self._roster.view.ids or tuple(self._roster.addresses), self._roster.id)

    def _there(self, peer: PeerId) -> bool:
        """Whether an answer of `peer` may come."""
        late_s = asyncio.get_running_loop().time() - 2 * self._channel.endpoint.patience_s
        return self._channel.endpoint.is_lost(peer) is None and self._asked_s.get(peer, late_s + 1.0) > late_s

    def _settled(self, mark: int, claim: _Claim) -> bool:
        """Whether enough others say so; if they do, go on."""
        if not self._is_enough(mark, claim):
            return False
        teller = next(iter(sorted(claim.hold)))
        del self._claims[mark]
        if isinstance(claim.told, Stale):
            self._outsiders.expel(claim.told)
        else:
            self._take(claim.told, teller)
        return True

    def _is_enough(self, mark: int, claim: _Claim) -> bool:
        roster = self._roster
        if not roster.view.generation and self.contact in claim.hold:
            return True
        if isinstance(claim.told, Stale):
            return not self._quorum.enough(roster.alive) or self._is_held(claim.hold)
        return self._is_held(claim.hold) or self._is_adopted(mark, claim, claim.told)

    def _is_held(self, hold: set[PeerId]) -> bool:
        members = self._members()
        there = sum(1 for peer in members if peer in hold or self._there(peer))
        held = len(hold.intersection(members))
        return held > 0 and held >= min(there, max(2, (there + 1) // 2))

    def _is_adopted(self, mark: int, claim: _Claim, decree: Decree) -> bool:
        """Whether enough have adopted the decree. A proposer knows that it holds; of the others any may say so, which
        counts only when more than half have adopted it. This member counts among those of which enough have to agree,
        also where it has adopted another decree: else a liar could tell each half of a view of the other half's. So do
        members that are `gone`, about which this peer may be wrong, until they are lost, or answer that they are in no
        view. Members that have adopted nothing after two patiences are not waited for: the proposer cannot reach them.
        Of another decree they would have told."""
        roster, own = self._roster, self._acceptor.has_adopted(decree)
        members = self._acceptor.echoes.hearers(roster.view)
        words = (claim.adopted | claim.hold | self._acceptor.echoes.same(mark)).intersection(members)
        late = asyncio.get_running_loop().time() > claim.since_s + 2 * self._channel.endpoint.patience_s
        left_out = {peer for peer in members if late and self._acceptor.echoes.is_silent(peer)}
        there = sum(1 for peer in members if peer in words or (peer not in left_out and self._there(peer)))
        if len(words) + own < enough_of(there + (roster.id in roster.view.ids)):
            return False
        several = len(words) >= min(there, 2) and len(words) + own >= roster.view.majority() > 1
        if believed := several or self._acceptor.proposed_by(decree) in claim.hold:
            witness(Believed(there + (roster.id in roster.view.ids), len(words) + own))
        return believed

    def _on_echo(self, peer: PeerId) -> None:
        for mark, claim in self._claims.items():
            if peer not in self._acceptor.echoes.same(mark):
                claim.adopted.discard(peer)
        for mark, claim in list(self._claims.items()):
            if self._settled(mark, claim):
                return

    def _on_confirmed(self, envelope: Envelope) -> None:
        answer, sender = envelope.message, envelope.sender
        claim = self._claims.get(answer.mark)
        if claim is None or sender not in self._members():
            return
        if answer.word == _NO_VIEW:
            self._asked_s[sender] = -math.inf
        else:
            self._asked_s.pop(sender, None)
        for other in [claim] if answer.word == _NO else self._claims.values():  # its last adoption may be another one
            other.adopted.discard(sender)
        if answer.word == _HOLDS:
            claim.hold.add(sender)
        elif answer.word == _ADOPTED:
            claim.adopted.add(sender)
        self._settled(answer.mark, claim)

    # As one that is asked

    def _on_confirm(self, envelope: Envelope) -> None:
        question: Confirm = envelope.message
        roster, asker, latest = self._roster, envelope.sender, self._acceptor.latest
        roster.view.check_sense(question.generation)
        word = _NO_VIEW if latest is None else _NO
        if latest is not None and mark_of(latest) == question.mark:
            word = _HOLDS
        elif latest is not None and latest.view.generation > question.generation:
            self._acceptor.of_now(envelope, question.generation)  # it is behind: tell it of this view
            return
        elif self._acceptor.adopted is not None and mark_of(self._acceptor.adopted) == question.mark:
            word = _ADOPTED
        if word in (_NO, _ADOPTED) and question.mark != _WITHOUT_ME and len(self._askers) < VIEW_MEMBERS_MAX:
            self._askers[asker] = question.mark
        self._channel.post(asker, Confirmed(question.mark, word))
