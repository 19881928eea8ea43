"""A change: the members of one view decide the next one, once and for all.

Single-decree Paxos (Lamport, "Paxos made simple", 2001), one instance for each generation: its members are the
acceptors, the decree is the next view with the round that all go on from, and the coordinator proposes.

    Propose -> Promise    to follow no lower ballot, and to commit no result any more in this generation; it tells the
                          last round I hold the result of, and the decree I have adopted, if any
    Adopt   -> Adopted    the decree: the one adopted under the highest ballot before, else the proposer's own
    Install               enough have adopted it: it holds

Enough is more than half of the view, or as many as `quorum` says. Hence at most one decree comes true in a generation,
and of two halves of a split at most one goes on. And as a commit takes more than half too (`local_sgd`), a result that
anyone committed is held by one of those who promise, and the decree hands it on; what a decree hands on is committed,
and the next one waits for somebody who has it. So no commit is ever undone. (With a `quorum` of half or less, both
halves may go on.)
Cost: 3 messages to each member and 2 from it, 2 round trips to the slowest.
On loss: who does not answer is gone after the endpoint's patience, and the change goes on without it. On the death of
the proposer the next in seniority proposes, under a higher ballot. Without enough, NoQuorum after 4 patiences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from ..endpoint import Endpoint, Envelope
from ..transport import PeerId
from ..witness import buggify, sometimes
from .acceptor import Acceptor
from .decree import next_decree
from .roster import TRY_FOR, NoQuorum, Roster, Standing
from .view import Adopt, Adopted, Behind, Decree, Install, Leave, Promise, Propose, View

_RANKS = 1 << 16
"""A ballot is a number times this plus its proposer's rank, so that no two proposers ever use the same."""


class Change:
    """One peer's part in it, as acceptor and, when it coordinates, as proposer."""

    def __init__(
        self,
        endpoint: Endpoint,
        roster: Roster,
        *,
        founders: int,
        quorum: int | None,
        standing: Callable[[], Standing],
        stale: Callable[[PeerId, int], None],
        take: Callable[[Decree, PeerId], None],
    ) -> None:
        """`stale` is told of who speaks from a generation without being a member, `take` of a decree that holds, and
        who said so."""
        self._endpoint, self._roster, self._founders, self.quorum = endpoint, roster, founders, quorum
        self._take = take
        self._acceptor = Acceptor(endpoint, roster, standing=standing, stale=stale, asked=self.consider)
        self._renew = False
        self._ballot = 0
        self._question: Propose | Adopt | None = None
        self._promises: dict[PeerId, Promise] = {}
        self._adoptions: dict[PeerId, Adopted] = {}
        self._leading: asyncio.Task[None] | None = None
        self.averaging = False
        """Whether a round is being averaged here: then newcomers wait, lest joining over and over stalls it."""
        self._waiting: asyncio.TimerHandle | None = None
        self._waited = False
        self._waiting_told = False
        roster.on_news.append(self.consider)
        endpoint.on(Promise, self._on_promise)
        endpoint.on(Adopted, self._on_adopted)
        endpoint.on(Install, self._on_install)
        endpoint.on(Behind, self._on_behind)

    @property
    def promised(self) -> int:
        """The highest ballot this peer has promised to follow; 0 while nothing is being changed."""
        return self._acceptor.promised

    def begin(self, decree: Decree | None) -> None:
        """The roster has gone on to the view of `decree`, in which nothing is promised yet."""
        self._cancel_wait()
        self._acceptor.begin(decree)
        self._ballot, self._renew, self._waiting_told = 0, False, False

    def consider(self) -> None:
        """As coordinator, lead a change when there is reason for one."""
        if self._leading is None and self._due():
            self._leading = asyncio.create_task(self._lead(self._roster.view), name="membership change")
            self._leading.add_done_callback(self._led)

    def renew(self) -> None:
        """Have the next generation decided though nobody comes or goes."""
        self._renew = True
        self.consider()

    def stop(self) -> None:
        """Lead no more."""
        self._cancel_wait()
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None

    def _due(self) -> bool:
        roster = self._roster
        if roster.failed is not None or roster.coordinator != roster.id:
            return False
        return roster.shrinking or self._renew or self.promised > 0 or self._newcomers_due()

    def _newcomers_due(self) -> bool:
        """At the end of the round that is averaged now, or after two patiences, whichever is sooner."""
        if not self._roster.newcomers or not self.averaging:
            return bool(self._roster.newcomers)
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(2 * self._endpoint.patience_s, self._end_wait)
        return self._waited or buggify("newcomers do not wait")

    def _end_wait(self) -> None:
        self._waited = True
        self.consider()

    def _cancel_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting, self._waited = None, False

    def _led(self, task: asyncio.Task[None]) -> None:
        if self._leading is not task:
            return
        self._leading = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._roster.fail(error)
        elif not task.cancelled():
            self.consider()

    async def _lead(self, view: View) -> None:
        pause_s = self._endpoint.interval_s
        if self.promised:
            await asyncio.sleep(pause_s)  # another leads: let it
        while self._roster.view is view and self._due():
            enough = await self._try(view)
            if enough is None:
                sometimes("two led at once")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._endpoint.patience_s)
            elif not enough:
                sometimes("too few answered")
                self._tell_of_waiting(view)
                if self._now() - self._acceptor.unsettled_s > TRY_FOR * self._endpoint.patience_s:
                    self._give_up()
                    return
                self._call_back()
                await asyncio.sleep(self._endpoint.interval_s)

    async def _try(self, view: View) -> bool | None:
        """One ballot. Whether enough answered; None when another leads or the view is over."""
        me = self._roster.id
        self._ballot = (self.promised // _RANKS + 1) * _RANKS + view.ids.index(me)
        self._promises = {me: self._acceptor.promise(self._ballot)}
        if not await self._ask(Propose(view.generation, self._ballot), self._promises):
            return None
        if not self.enough(self._promises):
            return False
        before = max(self._promises.values(), key=lambda promise: promise.adopted).decree
        if before is None and not self._have_base():
            sometimes("nobody there had what is committed")
            return False
        self._roster.dismiss_lost()
        decree = before or next_decree(self._roster, self._promises, self._founders)
        self._adoptions = {me: self._acceptor.adopt(self._ballot, decree)}
        if not await self._ask(Adopt(view.generation, self._ballot, decree), self._adoptions):
            return None
        if not self.enough(self._adoptions):
            return False
        for member in decree.view.members:
            if member.id != me:
                self._endpoint.dial(member.id, member.address)
        for peer in dict.fromkeys((*self._roster.alive, *decree.view.ids)):
            if peer != me:
                self._endpoint.post(peer, Install(decree))
        self._take(decree, me)
        return True

    async def _ask(self, question: Propose | Adopt, answers: Mapping[PeerId, Promise | Adopted]) -> bool:
        """Ask all that are not gone until each has answered. False when another leads or the view is over."""
        roster, patience_s = self._roster, self._endpoint.patience_s
        asked: dict[PeerId, float] = {}
        self._question = question
        try:
            while roster.view.generation == question.generation:
                self._acceptor.promised = max(self.promised, *(answer.promised for answer in answers.values()))
                if self.promised != question.ballot:
                    return False
                missing = [peer for peer in roster.alive if peer not in answers]
                if not missing:
                    return True
                for peer in missing:
                    if peer not in asked:
                        asked[peer] = self._now()
                        self._endpoint.post(peer, question)
                    elif self._now() - asked[peer] > 2 * patience_s:
                        roster.suspect(peer, f"it is there but has not answered for {2 * patience_s:g} s")
                await roster.change_within(self._endpoint.interval_s)
            return False
        finally:
            self._question = None

    def enough(self, peers: Collection[PeerId]) -> bool:
        """Whether so many members may decide the next view."""
        view = self._roster.view
        if not view.started and 2 * len(peers) == len(view.members):
            return view.by_seniority[0] in peers  # there is no result yet to be undone, and only one such half
        if self.quorum is None or not view.started:
            return len(peers) >= view.majority()
        return len(peers) >= min(self.quorum, len(view.members))

    def _have_base(self) -> bool:
        """Whether one of those who promised has what the view goes on from, or a later result: to go on without would
        undo a commit. It matters only where two quorums always meet."""
        view, quorum = self._roster.view, self.quorum
        if not view.started or (quorum is not None and quorum < view.majority()):
            return True
        return max(promise.round for promise in self._promises.values()) >= self._roster.base

    def _call_back(self) -> None:
        """Too few answered. Those given up may be there again, or on the better side of a split: they say so."""
        for member in self._roster.view.members:
            if member.id in self._roster.gone:
                self._endpoint.dial(member.id, member.address)
                self._endpoint.post(member.id, Propose(self._roster.view.generation, self._ballot))

    def _tell_of_waiting(self, view: View) -> None:
        if not self._waiting_told:
            self._waiting_told = True
            why = f"only {len(self._promises)} of {len(view.members)} peers answer"
            for told in self._roster.on_waiting:
                told(f"{why}, for at most {TRY_FOR * self._endpoint.patience_s:g} s")

    def _give_up(self) -> None:
        view, present = self._roster.view, len(self._promises)
        needed = view.majority() if self.quorum is None else min(self.quorum, len(view.members))
        left = f"{present} of {len(view.members)} peers are left"
        if present < needed:
            why = f"{left}, {needed} are needed to go on; restart the others, or allow fewer with --quorum {present}"
        else:
            why = f"{left}, and none of them has the result of round {self._roster.base}: restart the run"
        self._roster.tell(Leave("too few peers are left"))  # those who are there come to the same end
        self._roster.fail(NoQuorum(why))

    def _on_promise(self, envelope: Envelope) -> None:
        promise: Promise = envelope.message
        if self._awaited(envelope, promise.generation, promise.ballot):
            self._promises[envelope.sender] = promise
            self._roster.welcome_back(envelope.sender)

    def _on_adopted(self, envelope: Envelope) -> None:
        adopted: Adopted = envelope.message
        if self._awaited(envelope, adopted.generation, adopted.ballot):
            self._adoptions[envelope.sender] = adopted
            self._roster.notify()

    def _awaited(self, envelope: Envelope, generation: int, ballot: int) -> bool:
        view = self._roster.view
        return envelope.sender in view.ids and (generation, ballot) == (view.generation, self._ballot)

    def _on_behind(self, envelope: Envelope) -> None:
        if self._acceptor.of_now(envelope, envelope.message.generation) or envelope.sender not in self._roster.view.ids:
            return
        if self._question is not None:
            self._endpoint.post(envelope.sender, self._question)

    def _on_install(self, envelope: Envelope) -> None:
        decree: Decree = envelope.message.decree
        if envelope.sender in self._roster.addresses and decree.view.generation > self._roster.view.generation:
            self._take(decree, envelope.sender)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
