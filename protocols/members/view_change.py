"""A change: the members of one view decide the next view, once and for all.

Single-decree Paxos (Lamport, "Paxos made simple", 2001), one instance for each generation: its members are the
acceptors, the decree is the next view with the version that all go on from, and the coordinator proposes.

    Propose -> Promise    to follow no lower ballot, and to commit no further result in this generation; it tells the
                          last result the member holds, and the decree it has adopted, if any
    Adopt   -> Adopted    the decree: one that was adopted and binds (`binding`), else the proposer's own
    Install               a quorum has adopted the decree: it holds

`quorum` defines a quorum: as a rule, more than half of the view. Hence at most one decree holds in a generation, and at
most one side of a split goes on. To commit a version takes the votes of more than half too (`Standing`), so one of the
members that promise holds any committed result, and the decree hands it on. A result that a decree hands on is
committed, and the next decree waits for a peer that holds it. So no commit is ever undone.

Cost: 3 messages to each member, 2 from it and one between each two (`echoes`), 2 round trips to the slowest; at most 3
more to each newcomer.
On failure: the change goes on without a member that is silent for a patience. If the proposer dies, the next in
seniority proposes under a higher ballot. Without a quorum the change is tried again for `Terms.give_up_after_s`;
NoQuorum at once where the living members cannot be a quorum. With `Terms.trains_on` it is tried again without end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..channel import Channel, Envelope
from ..testpoints import sometimes, witness
from ..transport import PeerId
from .acceptor import FAR_AHEAD_MAX, Acceptor
from .attached import Standing
from .binding import binding, contradictions
from .echoes import RANKS
from .errors import MembershipError, NoQuorum
from .hearsay import Hearsay
from .ledger import Ledger
from .messages import Adopt, Adopted, Behind, Install, Leave, Promise, Propose
from .next_view import next_decree
from .occasion import Occasion
from .outsiders import Outsiders
from .quorum import Quorum
from .reminders import Reminders
from .roster import Roster
from .terms import Terms
from .view import Answered, Decree, View

_DENIALS_MAX = 8
"""The most ballots that a member may deny in a generation; an honest one denies fewer, as rivals are seldom heeded."""


class _Asked(NamedTuple):
    """The question of a ballot that members are asked now, and those that were behind and have been asked again."""

    question: Propose | Adopt
    again: set[PeerId]


class Change:
    """One peer's side of changes: answers proposers and, as the coordinator, has the next view decided."""

    def __init__(
        self,
        channel: Channel,
        roster: Roster,
        ledger: Ledger,
        terms: Terms,
        *,
        quorum: Quorum,
        outsiders: Outsiders,
        standing: Callable[[], Standing],
        take: Callable[[Decree, PeerId], None],
    ) -> None:
        """`standing`: this peer's versions. `take` is called with a decree that holds, and the peer that says so."""
        self._channel, self._roster, self._terms = channel, roster, terms
        self.quorum, self._take, self._ledger = quorum, take, ledger
        self.reminders = Reminders(channel, roster)
        self.acceptor = Acceptor(
            channel, roster, ledger, standing=standing, stale=outsiders.refuse, answered=self._has_answered
        )
        self.acceptor.echoes.on_echo.append(lambda peer: self.reminders.heard(peer, roster.view.generation + 1))
        self.hearsay = Hearsay(channel, roster, self.acceptor, quorum, outsiders, take)
        self._ballot, self._renew = 0, False
        self._asked: _Asked | None = None
        self._promises: dict[PeerId, Promise] = {}
        self._adoptions: dict[PeerId, Adopted] = {}
        self._denials = Counter[PeerId]()
        self._took_s = 0.0
        """Seconds until a quorum had answered the questions of the last ballot."""
        self._answered: set[PeerId] = set()
        """Members that have answered the last question."""
        self._leading: asyncio.Task[None] | None = None
        self.occasion = Occasion(channel, roster, terms, self.consider)
        roster.on_news.append(self.consider)
        channel.on(Promise, self._on_promise)
        channel.on(Adopted, self._on_adopted)
        channel.on(Behind, self._on_behind)

    @property
    def leads(self) -> bool:
        """Whether this peer leads a change now."""
        return self._leading is not None

    @property
    def promised(self) -> int:
        """The highest ballot this peer has promised to follow; 0 while nothing is being changed."""
        return self.acceptor.promised

    def begin(self, decree: Decree | None) -> None:
        """Start afresh in the view of `decree`, in which nothing is promised yet. None: this peer joins anew."""
        self.occasion.begin()
        self.reminders.stop()
        self.acceptor.begin(decree)
        self.hearsay.begin(decree)
        self._ballot, self._renew = 0, False
        self._denials.clear()

    def consider(self) -> None:
        """Begin to lead a change, if this peer is the coordinator, leads none, and there is a reason for one."""
        if self._leading is None and self._due():
            self._leading = asyncio.create_task(self._lead(self._roster.view), name="membership change")
            self._leading.add_done_callback(self._led)

    def renew(self) -> None:
        """As coordinator, now or later in this view, have a new view decided even if no member comes or goes."""
        self._renew = True
        self.consider()

    def _has_answered(self, proposer: PeerId) -> None:
        self.reminders.pass_on(self.acceptor.passed_on, proposer, self.acceptor.postponed.courtesy_s)
        self.consider()

    def stop(self) -> None:
        """Stop leading; drop waiting proposals, timers and views that others told of. `consider` may lead again."""
        self.occasion.stop()
        self.hearsay.stop()
        self.acceptor.postponed.stop()
        self.reminders.stop()
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None

    def _due(self) -> bool:
        roster = self._roster
        if roster.failed is not None or roster.coordinator != roster.id:
            return False
        return roster.shrinking or self._renew or self.promised > 0 or self.occasion.now

    def _led(self, task: asyncio.Task[None]) -> None:
        if self._leading is not task:
            return
        self._leading = None
        self._roster.notify()
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self.consider()
        elif isinstance(error, MembershipError):
            self._roster.fail(error)
        else:  # only this change has failed, not this peer
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": "a change of the view failed", "exception": error})
            loop.call_later(self._channel.endpoint.interval_s, self.consider)

    async def _lead(self, view: View) -> None:
        pause_s = self._channel.endpoint.interval_s
        if self.promised:
            await asyncio.sleep(self.acceptor.postponed.courtesy_s)  # another leads: let it
        while self._roster.view is view and self._due():
            enough = await self._try(view)
            if enough is None:
                sometimes("two led at once")
                await asyncio.sleep(0.0 if view.by_seniority[0] == self._roster.id else pause_s)
                pause_s = min(2 * pause_s, self._channel.endpoint.patience_s)
            elif not enough:
                sometimes("too few answered")
                waited_s, terms = asyncio.get_running_loop().time() - self.acceptor.unsettled_s, self._terms
                if not terms.trains_on and (self.quorum.hopeless(self._answered) or waited_s > terms.limit_s):
                    self._give_up()
                    return
                why = f"{self.quorum.lacks(self._promises)}; it waits for them{terms.limit_in_words}"
                self._roster.falls_short(why, trains_on=terms.trains_on and self._roster.view.started)
                self._call_back()
                await asyncio.sleep(self._channel.endpoint.interval_s)

    async def _try(self, view: View) -> bool | None:
        """One ballot. Whether a quorum answered; None when another member leads or the view is over."""
        me, self._answered = self._roster.id, {self._roster.id}
        self._took_s, self._ballot = 0.0, (self.promised // RANKS + 1) * RANKS + view.ids.index(me)
        self._promises = {me: self.acceptor.promise(self._ballot)}
        if not await self._ask(Propose(view.generation, self._ballot), self._promises) or self.promised > self._ballot:
            return None  # also if it promised a rival while its promise was written: it could not adopt its own decree
        self._answered = {*self._promises}
        if not self.quorum.enough(self._promises):
            return False
        for peer, why in contradictions(view, self._promises):
            self._channel.endpoint.report(peer, why)
        before = binding(self._roster, self.quorum, self.acceptor.echoes, self.hearsay, self._promises)
        self._roster.dismiss_lost()
        decree = before or next_decree(self._roster, self._promises, self._terms.founders, self._terms.servers)
        if before is None and not self.quorum.has_base(decree):
            sometimes("nobody there had what is committed")
            return False
        self._adoptions = {me: self.acceptor.adopt(self._ballot, decree, me)}
        if not await self._ask(Adopt(view.generation, self._ballot, decree), self._adoptions):
            return None
        self._answered = {*self._adoptions}
        if not self.quorum.enough(self._adoptions):
            return False
        for one in (*decree.view.members, *decree.view.learners):
            if one.id != me:
                self._channel.endpoint.dial(one.id, one.address)
        for peer in dict.fromkeys((*self._roster.alive, *decree.view.everybody)):
            if peer != me:
                self._channel.post(peer, Install(decree))
        self._take(decree, me)
        self.occasion.rest(self._took_s)
        return True

    async def _ask(self, question: Propose | Adopt, answers: Mapping[PeerId, Promise | Adopted]) -> bool:
        """Ask all that are not gone until each has answered. False when another member leads or the view is over."""
        roster, patience_s, now = self._roster, self._channel.endpoint.patience_s, asyncio.get_running_loop().time
        asked: dict[PeerId, float] = {}
        began_s, took_s = now(), 0.0
        self._asked = _Asked(question, set())
        for peer in roster.gone if isinstance(question, Adopt) else ():  # the others count on its echo if it lives
            if self._channel.endpoint.is_lost(peer) is None:
                self._channel.post(peer, question)
        try:
            while roster.view.generation == question.generation:
                self.acceptor.promised = max(self.promised, *(answer.promised for answer in answers.values()))
                if self.promised != question.ballot:
                    return False
                if not took_s and self.quorum.enough(answers):
                    took_s = now() - began_s
                missing = [peer for peer in (*roster.alive, *roster.former) if peer not in answers]
                if not missing:
                    self.acceptor.keep()  # on record, as the promises of the others are before they answer
                    await self._ledger.synced()
                    return roster.view.generation == question.generation
                for peer in missing:
                    if peer not in asked:
                        asked[peer] = now()
                        self._channel.post(peer, question)
                    elif now() - asked[peer] > 2 * patience_s:
                        roster.is_silent(peer, f"it is there but has not answered for {2 * patience_s:g} s")
                await roster.change_within(self._channel.endpoint.interval_s)
            return False
        finally:
            self._asked, self._took_s = None, self._took_s + took_s

    def _call_back(self) -> None:
        """Too few have answered. Ask members that were given up: they may be back, or beyond a split."""
        for member in self._roster.view.members:
            if member.id in self._roster.gone:
                self._channel.endpoint.dial(member.id, member.address)
                self._channel.post(member.id, Propose(self._roster.view.generation, self._ballot))

    def _give_up(self) -> None:
        wanted = max(self._roster.base.number, *(promise.result.number for promise in self._promises.values()))
        why = self.quorum.in_words(self._promises, wanted)
        self._roster.tell(Leave("too few peers are left"))  # the remaining members reach the same conclusion
        self._roster.fail(NoQuorum(why))

    def _on_promise(self, envelope: Envelope) -> None:
        promise, view = envelope.message, self._roster.view
        if promise.generation == view.generation and envelope.sender in view.ids and not self._denies(envelope.sender):
            witness(Answered(envelope.sender))
            self._roster.answers(envelope.sender, former=promise.former)  # however late
        if self.acceptor.of_now(envelope, promise.generation) and self._awaited(envelope, promise):
            self._promises[envelope.sender] = promise
            self._roster.notify()

    def _on_adopted(self, envelope: Envelope) -> None:
        if self.acceptor.of_now(envelope, envelope.message.generation) and self._awaited(envelope, envelope.message):
            self._adoptions[envelope.sender] = envelope.message
            self._roster.notify()

    def _awaited(self, envelope: Envelope, answer: Promise | Adopted) -> bool:
        """Whether an answer of a member, in the present view, is one to the present ballot."""
        sender = envelope.sender
        if answer.ballot != self._ballot or not self.acceptor.makes_sense(answer.promised, FAR_AHEAD_MAX):
            return False
        self._denials[sender] += answer.promised > answer.ballot
        if not self._denies(sender):
            return True
        self._roster.is_silent(sender, "it denies every ballot")
        return False

    def _denies(self, peer: PeerId) -> bool:
        return self._denials[peer] > _DENIALS_MAX

    def _on_behind(self, envelope: Envelope) -> None:
        if self.acceptor.of_now(envelope, envelope.message.generation) or envelope.sender not in self._roster.view.ids:
            return
        if self._asked is not None and envelope.sender not in self._asked.again:
            self._asked.again.add(envelope.sender)
            self._channel.post(envelope.sender, self._asked.question)
