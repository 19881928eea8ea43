"""The acceptor's half of a change of the view (`view_change`): the ballot that this member has promised to follow, and
the decree, the proposed next view, that it has adopted.

Each process that runs under a peer's key is another life. A restarted process that finds the record of its former life
(`ledger`) acts as that life's acceptor in that life's view, until it hears of a later view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..channel import Channel, Envelope
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .attached import Standing
from .backoff import Once
from .echoes import Echoes, proposer_of
from .ledger import Ballot, Former, Ledger, Lives, Seat
from .messages import Adopt, Adopted, Behind, Install, Promise, Propose
from .postponed import Postponed
from .roster import TRY_FOR, Roster
from .view import NOBODY, Adoption, Bound, Decree, Followed, HeardOf, Member, Promised, Version, View

_AHEAD_MAX, FAR_AHEAD_MAX = 1 << 36, 1 << 52
"""How far a ballot may lie above the promised one. The near limit allows a million tries (`view_change`). The far limit
holds for the coordinator's ballots, and for ballots that a member reports in a promise, because that member may have
been asked under higher ballots than this one."""

_LIVES = 64
"""How many of its former lives a peer remembers that has been restarted again and again without being let in."""


class Acceptor:
    """One member's promises and adoptions in the change of the present view. `standing` returns the versions of its
    state. `stale` is called with a sender that is no member, and the generation that it names. `answered` is called
    after each answer of this peer, with the proposer that it goes to."""

    def __init__(
        self,
        channel: Channel,
        roster: Roster,
        ledger: Ledger,
        *,
        standing: Callable[[], Standing],
        stale: Callable[[PeerId, int], None],
        answered: Callable[[PeerId], None],
    ) -> None:
        self._channel, self._roster, self._ledger = channel, roster, ledger
        self._standing, self._stale, self._answered = standing, stale, answered
        self.echoes = Echoes(channel, roster)
        self.promised = 0
        """The highest ballot this member has promised to follow; 0 while nothing is being changed."""
        self.unsettled_s = 0.0
        """When this member first promised anything in this generation, on the loop's clock."""
        self._me = roster.me
        self._adopted = Adoption()
        self._latest: Decree | None = None
        self.postponed = Postponed(channel, roster, self._on_question)
        self._told: Once[PeerId] = Once(channel.endpoint.interval_s)
        """Limits how often a peer that is behind is sent the present view: the view takes a thousand times the bytes of
        the question."""
        self._lives: tuple[int, ...] = ()
        """The lives of this peer that have voted on behalf of a former one, this one the last."""
        self._voted: Version | None = None
        """The result that a former life voted for last; this life does not hold it."""
        channel.on(Propose, self._on_propose)
        channel.on(Adopt, self._on_adopt)

    @property
    def votes(self) -> bool:
        """Whether this peer votes in changes of the view: it is a member, or goes on as the acceptor of a former life
        that is."""
        return self._roster.id in self._view.ids

    @property
    def _view(self) -> View:
        return NOBODY if self._latest is None else self._latest.view

    @property
    def latest(self) -> Decree | None:
        """The decree of the present view, which this peer is in, has left, or votes in for a former life. None: it has
        not joined yet, or joins anew."""
        return self._latest

    def begin(self, decree: Decree | None) -> None:
        """Start afresh in the view of `decree`, in which nothing is promised yet; the roster has gone on to that view
        before. None: this peer has given up its view, to join anew. The ledger gets the seat in that view; if this peer
        is no member there, the ledger's entries are removed. Postponed questions are handled."""
        self._me = self._roster.me
        if decree is not None:
            witness(Followed(decree.view.generation))
        self._go_to(decree)

    def go_on(self, former: Former) -> None:
        """Take over the promises of a former life of this peer, read from the ledger (`Ledger.former`), and vote on its
        behalf. To be called before this peer is in any view."""
        self._me, self._latest = former.seat.me, former.seat.decree
        self._lives = (*former.lives, self._roster.me.life)[-_LIVES:]
        self._keep_lives()
        if former.ballot is not None:
            self.promised = former.ballot.promised
            self._adopted = Adoption(former.ballot.adopted, former.ballot.decree)
        witness(Bound(self._me.life, self._view.generation, self.promised, self._adopted.ballot))
        self._voted = None if former.vote is None else former.vote.version

    def follow(self, decree: Decree) -> None:
        """Take note that `decree` holds, while this peer votes for a former life. If the view of `decree` is later than
        the one in which this peer votes, and has as a member that life, or a later one that is over, too, go on as its
        acceptor in that view. Its members may not know that this peer was restarted, and may wait for it, so it tells
        them. Otherwise do nothing: this peer votes on in the view before."""
        view = decree.view
        mine = view.member(self._me.id)
        witness(HeardOf(view.generation, 0 if mine is None else mine.life))
        if view.generation > self._view.generation and mine is not None and self.speaks_for(mine):
            sometimes("an acceptor went on for a former life")
            self._me = mine
            self._go_to(decree)
            self._keep_lives()
            for peer in view.after(self._me.id, len(view.everybody) - 1):
                self._answer(peer, self.promise(self.promised))

    def _go_to(self, decree: Decree | None) -> None:
        self.promised, self._adopted, self._latest, self._voted = 0, Adoption(), decree, None
        self._told.clear()
        self.echoes.begin()
        if decree is not None and self.votes:
            self._ledger.keep(Seat(self._me, decree))
        else:
            self._ledger.strike()
        self.postponed.heed_all()

    def speaks_for(self, former: Member) -> bool:
        """Whether this peer votes on behalf of its `former` life, or may do so in that life's view."""
        return self._me.life != self._roster.me.life and former.life in (self._me.life, *self._lives)

    def _keep_lives(self) -> None:
        self._ledger.keep(Lives(self._me.life, self._view.generation, self._lives))

    def promise(self, ballot: int) -> Promise:
        """Promise to follow `ballot`, unless a higher one is promised already. Returns the answer for the proposer: the
        highest promised ballot, the versions that this member holds, and the decree that it has adopted. To be sent
        once it is written to disk (`keep`)."""
        if self.promised == 0:
            self.unsettled_s = asyncio.get_running_loop().time()
        self.promised = max(self.promised, ballot)
        witness(Promised(self._view.generation))
        self._roster.notify()
        standing, (adopted, decree, *_) = self._standing(), self._adopted
        lost = self._voted is not None and self._voted.number > standing.state.number
        result = self._voted if lost and self._voted is not None else standing.result
        generation, former = self._view.generation, self._me.life != self._roster.me.life
        return Promise(generation, ballot, self.promised, standing.state, result, not lost, adopted, decree, former)

    def adopt(self, ballot: int, decree: Decree, proposer: PeerId) -> Adopted:
        """Adopt `decree`, unless a higher ballot than `ballot` has been promised. Returns the answer for the proposer:
        its `promised` is `ballot` if the decree was adopted, else the higher ballot. To be sent once it is written to
        disk (`keep`)."""
        if ballot >= self.promised:
            now = asyncio.get_running_loop().time()
            self.promised, self._adopted = ballot, Adoption(ballot, decree, proposer, now)
            self.echoes.adopted(ballot, decree, proposer)
        return Adopted(self._view.generation, ballot, self.promised)

    @property
    def adopted(self) -> Decree | None:
        """The decree that this member has adopted last in this generation; None: none."""
        return self._adopted.decree

    def has_adopted(self, decree: Decree) -> bool:
        """Whether the decree that this member adopted last in this generation equals `decree`, whatever the ballots.
        The adoption of a former life on whose behalf it votes counts; one that a later adoption has replaced does
        not."""
        return self._adopted.decree == decree

    def proposed_by(self, decree: Decree) -> PeerId | None:
        """The member from which this one has adopted `decree`, and which therefore knows the other adoptions. None:
        this member's last adoption is another one or none (`has_adopted`), or a former life adopted it."""
        return self._adopted.proposer if self.has_adopted(decree) else None

    @property
    def passed_on(self) -> int:
        """The ballot under which this member passes a proposal on to others (`Reminders`): the promised one, but at
        most 2^36, a ballot that any other member heeds."""
        return min(self.promised, _AHEAD_MAX)

    def makes_sense(self, ballot: int, ahead: int = _AHEAD_MAX) -> bool:
        """Whether an honest member may use `ballot`: it is at most `ahead` (as a default 2^36) above the promised one,
        or lower. A ballot far above would leave no room for those of the others."""
        return ballot <= self.promised + ahead

    def keep(self, then: Callable[[], None] = lambda: None) -> None:
        """Write to disk what was promised and adopted so far, in the background, and then call `then`; without a store
        on disk, call it at once. If outdated entries can be neither replaced nor removed, or the ledger is closed
        first, `then` is not called (`Ledger.keep`)."""
        adopted, decree, *_ = self._adopted
        self._ledger.keep(Ballot(self._me.life, self._view.generation, self.promised, adopted, decree), then)

    def of_now(self, envelope: Envelope, generation: int) -> bool:
        """Whether the sender of a message is a member and names this peer's present `generation`. Otherwise False. A
        sender that names a later generation is then asked for its view. One of the present view that names a former
        generation gets this view, at most once an interval. Any other sender that is no member is passed to `stale`.
        Raises PeerMisbehaved when `generation` is further ahead than any honest peer can be."""
        view, sender, alone = self._view, envelope.sender, self._roster.id not in self._roster.view.ids
        view.check_sense(generation)
        if generation > view.generation and (self.votes or self._roster.learns):
            self._channel.post(sender, Behind(view.generation))
        elif generation < view.generation and self._latest is not None and (alone or sender in view.everybody):
            if self._told.due(sender):
                self._channel.post(sender, Install(self._latest))
        elif sender not in view.ids:
            self._stale(sender, generation)
        return sender in view.ids and generation == view.generation

    def of_coordinator(self, envelope: Envelope, generation: int) -> bool:
        """Whether the sender of a message to the coordinator is a member that names the present `generation`, as
        `of_now`. A peer that votes for its former life coordinates nothing: it also sends its present promise to the
        sender, which then knows. The result is True in this case, too."""
        now = self.of_now(envelope, generation)
        if now and self._me.life != self._roster.me.life:
            sometimes("an acceptor of a former life was taken for the coordinator")
            self._answer(envelope.sender, self.promise(self.promised))
        return now

    def _heeds(self, envelope: Envelope, question: Propose | Adopt) -> bool:
        if self._latest is None and envelope.sender in self._roster.addresses:
            # This peer may be confirming its first view.
            self.postponed.put_off(envelope, self._channel.endpoint.patience_s)
            return False
        if question.generation == self._view.generation + 1 and envelope.sender in self._roster.view.ids:
            self.postponed.put_off(envelope, self._channel.endpoint.patience_s)
        if not self.of_now(envelope, question.generation) or not self.votes:
            return False
        leads = envelope.sender == self._roster.coordinator
        if not self.makes_sense(question.ballot, FAR_AHEAD_MAX if leads else _AHEAD_MAX):
            raise PeerMisbehaved(f"proposed the ballot {question.ballot}, which nobody can have come to")
        return True

    def _on_question(self, envelope: Envelope) -> None:
        (self._on_propose if isinstance(envelope.message, Propose) else self._on_adopt)(envelope)

    def _on_propose(self, envelope: Envelope) -> None:
        proposal: Propose = envelope.message
        if self._heeds(envelope, proposal) and not self.postponed.too_often(envelope, self.promised):
            self._answer(envelope.sender, self.promise(proposal.ballot))

    def _on_adopt(self, envelope: Envelope) -> None:
        request, sender = envelope.message, envelope.sender
        if not self._heeds(envelope, request):
            return
        if proposer_of(self._view.ids, request.ballot) != sender:
            raise PeerMisbehaved("asked to adopt under the ballot of another member")
        if self._must_wait(request.decree, sender):
            self.postponed.put_off(envelope, self._channel.endpoint.interval_s)
        elif not self.postponed.too_often(envelope, self.promised):
            promise, standing = self.promise(request.ballot), self._standing()
            known = request.decree.base in (standing.state, standing.result)
            waits = request.ballot == self.promised and self.postponed.must_yield(
                envelope, self.echoes.liars, known=known
            )
            self._answer(sender, promise if waits else self.adopt(request.ballot, request.decree, sender))

    def _must_wait(self, decree: Decree, proposer: PeerId) -> bool:
        """Whether to put off `decree`, because this member has adopted another one. Always if echoes tell that enough
        have adopted that.

        If that was of `proposer` too, it has changed its mind. An honest proposer never does so once more than half
        have adopted it, and otherwise only for a decree that somebody has adopted from another proposer, which is
        echoed; the echo may be lost with its sender. If that was of the coordinator, its decree may hold already, and
        then a liar may ask for another one. So the coordinator has the time to say that it holds: it waits for a silent
        member for two patiences. As coordinator this member knows itself whether its own decree holds."""
        adopted, patience_s = self._adopted, self._channel.endpoint.patience_s
        if adopted.decree is None or adopted.decree == decree:
            return False
        if self.echoes.may_hold():
            return True
        recent = asyncio.get_running_loop().time() < adopted.at_s + TRY_FOR * patience_s
        if adopted.proposer == proposer:
            return (recent or self.echoes.is_chosen()) and not self.echoes.by_another(decree, proposer)
        return recent and adopted.proposer == self._roster.coordinator != self._roster.id

    def _answer(self, to: PeerId, answer: Promise | Adopted) -> None:
        self.keep(lambda: self._say(to, answer))
        self._answered(to)

    def _say(self, to: PeerId, answer: Promise | Adopted) -> None:
        self._channel.post(to, answer)
        adopts = isinstance(answer, Adopted) and answer.promised == answer.ballot
        adopted = answer.adopted if isinstance(answer, Promise) else answer.ballot if adopts else 0
        witness(Bound(self._me.life, answer.generation, answer.promised, adopted))
        if adopts:
            self.echoes.tell()
