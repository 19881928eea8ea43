"""SWIM as a state machine: one peer's membership without IO. Its inputs are messages and the passing of time. Its
outputs are messages, and reports of members that come and go (`effects`). `words` are statements of a peer on another
one.

    each period                 a probe of one member, and of some suspects                      Probe
      after a third of it       those without an answer again, through three helpers             AskProbe, Probed
      at its end                without an answer: suspected, later declared dead (`suspicion`)
    on a probe                  an answer                                                        Ack
    on fresh words              told to three members at once, and then on probes and answers    Tell

Source: Das, Gupta and Motivala, DSN 2002, with suspicion (section 4.2) and round-robin probes (section 4.3). This
library adds two things: a peer believes a death only after a failed probe of its own, and fresh words are told at once.

Cost: a probe, an answer and at most 6 words with each, a period. More only while members gather, come, go or fail.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace

from ..members.view import Member
from ..testpoints import sometimes, witness
from ..transport import PeerId
from .beliefs import Begun
from .detector import Attempt, Detector
from .dial_limit import DialLimit
from .dissemination import Dissemination
from .effects import Effects, Known
from .gathering import Gathering
from .member_table import MemberTable
from .messages import WORDS_SENT, Ack, AskProbe, Beat, Probe, Probed, Table, Tell, check_accusation, check_beat
from .overlay import Overlay
from .push_sync import PushSync
from .suspicion import Suspicion
from .timing import Timing
from .words import Kind, Word, alive, mark

_REUNION = 8
"""The number of periods from one look for a lost member to the next."""


class Swim:
    """One peer's membership, as a state machine. `table`: the members that it knows. `founders`: how many peers gather
    before the run starts. `links`: how many links each peer wishes for; None: each knows all."""

    def __init__(
        self,
        table: MemberTable,
        timing: Timing,
        effects: Effects,
        chance: random.Random,
        *,
        founders: int,
        links: int | None = None,
    ) -> None:
        self.table, self._timing, self._effects, self._chance = table, timing, effects, chance
        self.gathering = Gathering(founders, chance, marks=links is not None)
        self.detector = Detector(timing, chance)
        self.push_sync = PushSync(table, timing, effects, chance, self.beat)
        self.dissemination = Dissemination(lambda: max(len(table) + 1, founders if links else 0), self.push_sync.fresh)
        self.suspicion = Suspicion(table, timing, self.detector, self.dissemination, effects, whole=links is None)
        self.overlay: Overlay | None = None
        if links is not None:
            self.overlay = Overlay(table, self.suspicion, effects, DialLimit(timing.dial_limit), chance, links)
        self._end_s = self._ask_s = math.inf
        """The times at which the period ends and at which helpers are asked."""

    def begin(self) -> None:
        """Begin to take part: the first period begins at a random moment, at most `Timing.period_s` from now."""
        table = self.table
        witness(Begun(table.me.life))
        self.gathering.add((mark(table.me.id, table.me.life),))
        self._end_s = self._effects.now() + self._chance.random() * self._timing.period_s

    @property
    def wake_s(self) -> float:
        """The time, on the clock of `Effects.now`, at which `tick` has to be called next; infinite: never."""
        errand_s = self.detector.next_errand_s
        return min(self._end_s, self._ask_s, self.push_sync.flush_s, math.inf if errand_s is None else errand_s)

    # Time

    def tick(self) -> None:
        """Do all that is due now: push words, ask helpers, end a period and begin the next."""
        now_s, period_s = self._effects.now(), self._timing.period_s
        if now_s >= self.push_sync.flush_s:
            self.push_sync.flush()
        for errand in self.detector.expired_errands(now_s):
            self._effects.send(errand.asker, Probed(errand.number, 0, 0))
        if now_s >= self._ask_s:
            self._ask_s = math.inf
            for attempt in self.detector.unanswered():
                self._ask_helpers(attempt)
        if now_s >= self._end_s:
            stood_still = now_s - self._end_s > period_s / 2
            self._end_period(forgiven=stood_still)
            self._end_s = now_s + period_s if stood_still else self._end_s + period_s
            self._ask_s = now_s + self._timing.direct * period_s
            self.push_sync.begin_period()
            self._begin_period(now_s)

    def _end_period(self, *, forgiven: bool) -> None:
        """Suspect members whose probes failed, unless `forgiven`: this process stood still and read nothing."""
        for attempt in self.detector.end():
            entry = self.table.entries.get(attempt.target)
            if entry is None or forgiven:
                continue
            if attempt.answered:
                self.suspicion.succeeded(entry)
            else:
                self.suspicion.failed(entry, alone=bool(attempt.helpers) and not attempt.helped)
        for peer in self.table.forgotten if self.overlay is None else ():
            self._effects.lapse(peer)
        self.table.forgotten.clear()
        self.suspicion.end_period()
        witness(Known(len(self.table), len(self.table.graves), len(self.dissemination)))

    def _begin_period(self, now_s: float) -> None:
        for target in self.detector.targets(self.table.entries):
            self._effects.send(target, Probe(self.detector.begin(target, now_s), self.beat(target)))
        if self.overlay is not None:
            self.overlay.begin_period()
        if (self.suspicion.period + self.table.me.life) % _REUNION == 0 or not self.table.entries:
            self._look_for_lost()

    def _look_for_lost(self) -> None:
        """Probe a lost member: a partition may have healed. If it answers, it hears of its loss and refutes that."""
        if self.overlay is not None:
            self.overlay.look_for_lost()
        elif (grave := self.table.next_grave()) is not None:
            self._effects.reach(grave.member)
            self._effects.send(grave.member.id, Probe(0, self.beat(grave.member.id)))

    def _ask_helpers(self, attempt: Attempt) -> None:
        entry = self.table.entries.get(attempt.target)
        if entry is None:
            return
        if self.overlay is not None:
            attempt.helpers = tuple(self.overlay.acquaintances.helpers(attempt.target, self._timing.helpers))
        else:
            self.detector.choose_helpers(attempt, self.table.entries)
        for helper in attempt.helpers:
            self._effects.send(helper, AskProbe(attempt.number, attempt.target, entry.accuses))

    # Messages

    def heard(self, sender: PeerId, message: object) -> None:
        """Handle a message from `sender`. Raises PeerMisbehaved for one that no honest peer can send."""
        if isinstance(message, Probe | Ack | Tell):
            check_beat(message.beat)
        if isinstance(message, Probe):
            self._take(sender, message.beat)
            self._effects.send(sender, Ack(message.number, self.beat(sender)))
        elif isinstance(message, Ack):
            self._acked(sender, message)
        elif isinstance(message, Tell):
            self._take(sender, message.beat)
        elif isinstance(message, AskProbe):
            self._help(sender, message)
        elif isinstance(message, Probed):
            self._helped(sender, message)
        elif isinstance(message, Table):
            if self.overlay is None:
                self.push_sync.take(sender, message, self.suspicion)
        elif self.overlay is not None:
            self.overlay.heard(sender, message)

    def _take(self, sender: PeerId, beat: Beat) -> None:
        known = sender in self.table.entries
        if self.suspicion.sign(sender, beat) is None:
            return
        for word in beat.words:
            self.suspicion.hear(word, sender)
        self._counts()
        self._started(self.gathering.add(beat.marks))
        if beat.started:
            self._hear_of_start(sender)
        if not known:
            self._sync(sender)  # a partition has healed, perhaps: then others are back too
        elif beat.digest not in (0, self.table.digest) and not len(self.dissemination):
            self._sync(sender)  # and no words are under way that might be the difference

    def _acked(self, sender: PeerId, ack: Ack) -> None:
        entry = self.table.entries.get(sender)
        known = entry is not None and entry.member.life == ack.beat.life  # another life has not answered for this one
        if (errand := self.detector.answered(ack.number, sender, known=known)) is not None:
            self._effects.send(errand.asker, Probed(errand.number, ack.beat.life, ack.beat.incarnation))
        self._take(sender, ack.beat)
        if not ack.beat.knows and sender in self.table.entries:
            if ack.beat.accuses:
                self._effects.send(
                    sender, Tell(self.beat(sender))
                )  # it took this peer for dead: here is the refutation
            elif self.overlay is not None:
                self.overlay.unknown_to(sender)
            else:
                self._effects.unknown_to(sender)

    def _help(self, asker: PeerId, asked: AskProbe) -> None:
        """Probe the target for `asker`, if it is a member here; else answer that it has not responded."""
        check_accusation(asked.accuses)  # it goes on in this peer's name
        if asker not in self.table.entries and self.overlay is None:
            return
        number = None
        if self.table.entries.get(asked.target) is not None:
            number = self.detector.errand(asker, asked.number, asked.target, self._effects.now())
        if number is None:
            self._effects.send(asker, Probed(asked.number, 0, 0))
            return
        beat = self.beat(asked.target)
        self._effects.send(asked.target, Probe(number, replace(beat, accuses=max(beat.accuses, asked.accuses))))

    def _helped(self, helper: PeerId, probed: Probed) -> None:
        if (target := self.detector.asked_for(probed.number, helper)) is None:
            return
        entry = self.table.entries.get(target)
        there = entry is not None and entry.member.life == probed.life
        if there and self.detector.is_open(probed.number):
            sometimes("a helper reached whom a peer did not")
        self.detector.helped(probed.number, there=there)
        if entry is not None and there:
            self.suspicion.heard_of(entry, probed.incarnation)

    def beat(self, to: PeerId) -> Beat:
        """The beat that this peer sends to `to` now. The words and marks in it count as sent."""
        table, entry = self.table, self.table.entries.get(to)
        grave = None if entry is not None else table.graves.get(to)
        accuses = entry.accuses if entry is not None else 0 if grave is None else grave.incarnation + 1
        return Beat(
            life=table.me.life,
            incarnation=table.incarnation,
            accuses=accuses,
            knows=entry is not None,
            started=self.gathering.started,
            digest=table.digest if self.overlay is None else 0,
            words=self.dissemination.pick(to, WORDS_SENT),
            marks=() if self.gathering.started else self.gathering.pick(),
        )

    # Coming in

    def let_in(self, newcomer: Member) -> int:
        """Let in a newcomer as a member, or, where peers have links to a few only, as an acquaintance, without a link.
        Returns its incarnation: above any that is known of it; 0: none is known, or peers have links to a few only."""
        peer, incarnation = newcomer.id, 0
        if self.overlay is not None:
            self.overlay.acquaintances.vouch(newcomer)
            return incarnation
        if (entry := self.table.entries.get(peer)) is not None:
            incarnation = max(entry.incarnation, entry.accused) + 1
        elif (grave := self.table.graves.get(peer)) is not None:
            incarnation = grave.incarnation + 1
        self.suspicion.enter(newcomer, incarnation, self.table.me.id)
        self.dissemination.add(alive(newcomer, incarnation))
        self._counts()
        return incarnation

    def enter(self, incarnation: int, words: Iterable[Word], contact: PeerId, *, started: bool) -> None:
        """Enter the run through `contact`, which has let this peer in with this incarnation. `words`: on the members
        that the contact knows. Where peers have links to a few only, `contact` is asked for the first of them, and no
        member is entered yet. `started`: the run has started."""
        self.table.take(self.table.me, max(incarnation, self.table.incarnation))
        for word in words:
            if self.overlay is not None and word.member is not None and word.id == contact:
                self.overlay.begin(word.member)
                break
            if word.member is not None and self.table.is_news(word) and len(self.table) < self.table.room:
                self.suspicion.enter(word.member, word.incarnation, contact)
        self._counts()
        if started:
            self._hear_of_start(contact)

    def leave(self) -> None:
        """Tell `Timing.eager` random members, one at least, that this peer leaves; they pass it on."""
        table = self.table
        self.dissemination.add(Word(Kind.DEAD, table.me.id, table.me.life, table.incarnation, table.me.id))
        self.push_sync.flush()

    # What members know

    def _counts(self) -> None:
        """Members have come: start the run if enough have gathered."""
        self._started(self.gathering.count(len(self.table) + 1))

    def _hear_of_start(self, teller: PeerId) -> None:
        self._started(self.gathering.hear(self.suspicion.period, len(self.table) + 1))
        if not self.gathering.started:
            self._sync(teller, soon=True)  # the run waits for this peer

    def _started(self, now: bool) -> None:
        if now:
            self.push_sync.fresh()
            self._effects.starts()

    def _sync(self, peer: PeerId, *, soon: bool = False) -> None:
        if self.overlay is None:
            self.push_sync.sync(peer, self.suspicion.period, soon=soon)
