"""Suspicion: a peer's beliefs about the members, from its own probes and from the words of others (`words`).

A peer declares a member dead after failed probes of its own, or on proof that its process has ended. Another peer
believes that once probes of its own have failed too. So words alone never remove a member that answers.

                     a word against it, or a failed probe          3 periods of failed probes
    alive ------------------------------------------> suspect ----------------------------------> lost
      ^                                                  |                                          ^
      |   a higher incarnation, by its own word          |                                          |
      +--------------------------------------------------+                                          |
      |                                                                          one failed probe   |
      +<------------------------------------------- doubted ----------------------------------------+
                                                 (declared dead by another)
"""

from __future__ import annotations

from ..members.neighbours import UNLINKED
from ..members.view import Member
from ..testpoints import sometimes, witness
from ..transport import PeerId
from .beliefs import Belief, Believes
from .detector import Detector
from .dissemination import Dissemination
from .effects import DeclaredDead, Effects, HeardDead, Refuted, Renewed, Suspected
from .false_suspicions import FalseSuspicions
from .member_table import Entry, MemberTable, Status
from .messages import Beat
from .timing import Timing
from .words import AHEAD_MAX, INCARNATION_MAX, Kind, Word

ANEW = "it was restarted"
LEFT = "it has left"


class Suspicion:
    """One peer's beliefs about others, by probes and words. `whole`: it knows all members; False: it has few links."""

    def __init__(
        self,
        table: MemberTable,
        timing: Timing,
        detector: Detector,
        dissemination: Dissemination,
        effects: Effects,
        *,
        whole: bool,
    ) -> None:
        self._table, self._timing, self._detector = table, timing, detector
        self._dissemination, self._effects, self._whole = dissemination, effects, whole
        self._false_suspicions = FalseSuspicions(3 * timing.suspicion)
        self.period = 0
        """The number of periods so far."""
        self.changed = False
        """Whether members have come or gone. The reader sets it back to False."""
        self._refuted_in = -1
        """The period in which this peer has refuted a word last."""

    # Probes

    def succeeded(self, entry: Entry) -> None:
        """Note a sign of life of the member. It voids failed probes, and an own suspicion that was told to nobody."""
        entry.failed, entry.proven = 0, True
        if entry.status == Status.ALIVE:
            self._detector.calm(entry.member.id)
        elif entry.accuser == self._table.me.id and not entry.told:
            self._clear(entry)  # nobody else has heard of the suspicion

    def failed(self, entry: Entry, *, alone: bool) -> None:
        """Note that a probe of the member has failed: suspect it. Declare it dead after `Timing.suspicion` periods of
        failed probes, or at once if another peer has done so. `alone`: no helper answered either, so this peer may be
        cut off: it accuses the member to no one, and gives it up for itself, later."""
        entry.failed += 1
        peer, me = entry.member.id, self._table.me.id
        if entry.failed == 1:
            entry.since = self.period
            witness(Suspected(peer, entry.member.life))
        if entry.status == Status.DOUBTED and (not alone or entry.failed > 1):
            why = LEFT if entry.accuser == peer else "others found it dead, and it does not answer"
            self.bury(entry, why, told=not alone)
            return
        if entry.status == Status.ALIVE:
            sometimes("a member was suspected")
            self._suspect(entry, Status.SUSPECT, entry.incarnation, me)
        if entry.accuser == me and not entry.told and entry.failed > 1 and not alone and self._whole:
            entry.told = True  # after the first it asks the member alone, which may well have an answer
            self._spread(Word(Kind.SUSPECT, peer, entry.member.life, entry.accused, me))
        lasting = self.period - entry.since
        if entry.failed > 1 and lasting >= (2 if alone else 1) * self._timing.suspicion:
            silent_s = (lasting + 1) * self._timing.period_s
            entry.accuser = me
            self.bury(entry, f"it has answered no probe for {silent_s:.1f} s, nor by helpers", told=not alone)

    def bury(self, entry: Entry, why: str, *, told: bool, left: bool = False) -> None:
        """Remove the member from the table as lost, or as having `left`, and report it with the reason `why`. `told`:
        also spread the word that it is dead."""
        member, by = entry.member, entry.member.id if left else entry.accuser or self._table.me.id
        left = left or by == member.id
        self._detector.calm(member.id)
        self.changed = True
        _believes(entry, Belief.LEFT if left else Belief.LOST)
        self._table.drop(entry, by, left=left)
        if told:
            if by == self._table.me.id:
                sometimes("a member was declared dead")
                witness(DeclaredDead(member.id, member.life))
            self._dissemination.add(Word(Kind.DEAD, member.id, member.life, max(entry.incarnation, entry.accused), by))
        self._effects.departed(member, why, left=left)

    # Words

    def hear(self, word: Word, bringer: PeerId) -> None:
        """Handle `word`, which `bringer` has told: change the belief about its subject if the word is newer than what
        is known and its sources are trusted, and pass it on."""
        table = self._table
        accuses = word.kind != Kind.ALIVE
        if accuses and (self._false_suspicions.distrusts(word.by) or self._false_suspicions.distrusts(bringer)):
            return
        if word.by == table.me.id:
            return  # this peer knows by itself whom it accuses
        if accuses and word.by == bringer:
            self._false_suspicions.heard(bringer, word.id, self.period)
        if word.id == table.me.id:
            self._hear_of_me(word)
        elif (entry := table.entries.get(word.id)) is None:
            self._hear_of_stranger(word, bringer)
        elif entry.member.life != word.life:
            self._hear_of_new_life(entry, word, bringer)
        elif word.incarnation <= max(entry.incarnation, entry.accused) + AHEAD_MAX:
            self._hear_of_member(entry, word, bringer)

    def _hear_of_member(self, entry: Entry, word: Word, bringer: PeerId) -> None:
        if word.member is not None:
            if word.incarnation > entry.described:
                self._table.describe(entry, word.member, word.incarnation)
                self._effects.reach(entry.member)
                self._spread(word, bringer)
            if word.incarnation > entry.incarnation:
                self._renew(entry, word.incarnation)
            return
        status = Status(word.kind)
        if word.incarnation < entry.incarnation or status <= (entry.status if word.incarnation <= entry.accused else 0):
            return
        if status == Status.DOUBTED:
            witness(HeardDead(word.id, word.life))
        self._suspect(entry, status, word.incarnation, word.by)
        self._spread(word, bringer)

    def _hear_of_new_life(self, entry: Entry, word: Word, bringer: PeerId) -> None:
        """The word is about another life of a member. It is the newer life only with a higher incarnation."""
        if word.member is None or not entry.incarnation < word.incarnation <= entry.incarnation + AHEAD_MAX:
            return
        sometimes("a member began a new life")
        self._replace(entry)
        self._enter(word.member, word.incarnation, bringer)
        self._spread(word, bringer)

    def _hear_of_stranger(self, word: Word, bringer: PeerId) -> None:
        table = self._table
        if not self._whole:
            if word.kind == Kind.DEAD and self._dissemination.add(word, bringer):
                witness(HeardDead(word.id, word.life))
            return
        if word.member is not None and table.is_news(word) and table.vacant(bringer):
            self._enter(word.member, word.incarnation, bringer)
            self._spread(word, bringer)

    def _hear_of_me(self, word: Word) -> None:
        """Refute a word of others on this peer, or on a former life under its key. Only this peer's own word of its
        present incarnation needs no refutation."""
        if word.incarnation > self._table.incarnation or word.member != self._table.me:
            self.refute(word.incarnation)

    def refute(self, incarnation: int) -> None:
        """Raise this peer's incarnation above `incarnation`, in which it was called suspect, dead or another life, and
        tell that it is alive. Once a period at most, and not for a lower incarnation or one absurdly far above."""
        table, rises = self._table, min(incarnation + 1, INCARNATION_MAX)
        sensible = table.incarnation < rises <= table.incarnation + AHEAD_MAX + 1
        if not sensible or self._refuted_in == self.period:
            return
        self._refuted_in, table.incarnation = self.period, rises
        sometimes("a suspicion was refuted")
        witness(Refuted(rises))
        self._refutation_of(table.me.id)
        self._spread(table.own_word)

    # Signs of life

    def sign(self, sender: PeerId, beat: Beat) -> Entry | None:
        """Take the `beat` of `sender` as a sign of life. Refutes an accusation of this peer; may take back a `sender`
        that was lost. Returns the sender's entry; None: it is no member here, or only another life of it is."""
        entry = self._table.entries.get(sender)
        if beat.accuses:
            self.refute(beat.accuses - 1)
        if entry is None:
            entry = self._risen(sender, beat)
        elif entry.member.life != beat.life:
            return None  # a former life, or a new one, whose address is still to come
        if entry is None:
            return None
        if not entry.proven and beat.incarnation < entry.incarnation and entry.status == Status.ALIVE:
            entry.incarnation = beat.incarnation  # by its own word: whoever told of it before has lied
            _believes(entry, Belief.ALIVE, own=True)
        if beat.incarnation > entry.incarnation:
            self._renew(entry, beat.incarnation)
        self.succeeded(entry)
        return entry

    def heard_of(self, entry: Entry, incarnation: int) -> None:
        """Note that the member has answered a helper, with this incarnation."""
        if entry.incarnation < incarnation <= max(entry.incarnation, entry.accused) + AHEAD_MAX:
            self._renew(entry, incarnation)
        self.succeeded(entry)

    def _risen(self, sender: PeerId, beat: Beat) -> Entry | None:
        """A member that was lost here has heard of it and refutes it: enter it again. None: it is not such a member."""
        grave = self._table.graves.get(sender)
        if grave is None or not self._whole or grave.member.life != beat.life or beat.incarnation <= grave.incarnation:
            return None
        if len(self._table) >= self._table.room:
            return None
        sometimes("a lost member is back")
        entry = self._enter(grave.member, beat.incarnation, sender)
        self._spread(Word(Kind.ALIVE, sender, beat.life, beat.incarnation, "", grave.member))
        return entry

    # Changes of the member table

    def enter(self, member: Member, incarnation: int, bringer: PeerId) -> Entry:
        """Enter `member` into the table as alive, and return its entry. An entry with its id is removed first, as that
        of a former life. `bringer`: the peer that told of it; this peer itself where it has let the member in."""
        if (entry := self._table.entries.get(member.id)) is not None:
            self._replace(entry)
        return self._enter(member, incarnation, bringer)

    def _enter(self, member: Member, incarnation: int, bringer: PeerId) -> Entry:
        entry = self._table.add(member, incarnation, bringer, self.period)
        _believes(entry, Belief.ALIVE, own=bringer in (member.id, self._table.me.id))
        self.changed = True
        self._detector.joins(member.id)
        self._effects.reach(member)
        self._effects.joined(member)
        return entry

    def _replace(self, entry: Entry) -> None:
        self._detector.calm(entry.member.id)
        self._drop(entry, ANEW)

    def unlink(self, entry: Entry) -> None:
        """Remove the member from the table because the link with it is given up. It stays in the run."""
        self._detector.calm(entry.member.id)
        self._drop(entry, UNLINKED)

    def _drop(self, entry: Entry, why: str) -> None:
        self.changed = True
        _believes(entry, Belief.UNKNOWN)
        self._table.drop(entry, "", grave=False)
        self._effects.departed(entry.member, why, left=False)

    def _suspect(self, entry: Entry, status: Status, incarnation: int, by: PeerId) -> None:
        entry.status, entry.accused, entry.accuser, entry.told = status, incarnation, by, False
        _believes(entry, Belief[status.name], incarnation)
        self._detector.hasten(entry.member.id)

    def _renew(self, entry: Entry, incarnation: int) -> None:
        """The member has raised its incarnation."""
        entry.incarnation = incarnation
        if entry.status != Status.ALIVE and incarnation > entry.accused:
            self._refutation_of(entry.member.id)
            self._clear(entry)
        witness(Renewed(entry.member.id, entry.member.life, incarnation))

    def _clear(self, entry: Entry) -> None:
        entry.status, entry.accused, entry.accuser = Status.ALIVE, 0, ""
        entry.failed, entry.told = 0, False
        _believes(entry, Belief.ALIVE)
        self._detector.calm(entry.member.id)

    def _refutation_of(self, accused: PeerId) -> None:
        for accuser in self._false_suspicions.refuted(accused, self.period):
            sometimes("an accuser lost its word")
            self._effects.distrusts(accuser)

    def _spread(self, word: Word, bringer: PeerId = "") -> None:
        """Pass on a word. Where peers have links to a few only, words that a peer is alive or suspect are not passed
        on, because they concern its neighbours alone."""
        if self._whole or word.kind == Kind.DEAD:
            self._dissemination.add(word, bringer)

    def end_period(self) -> None:
        """Count a period as over."""
        self.period += 1
        self._false_suspicions.end_period(self.period)


def _believes(entry: Entry, belief: Belief, incarnation: int | None = None, *, own: bool = False) -> None:
    """Report to the simulation's checkers what this peer believes of the member. `incarnation` None: the highest that
    is known of it."""
    highest = max(entry.incarnation, entry.accused) if incarnation is None else incarnation
    witness(Believes(entry.member.id, entry.member.life, belief, highest, own))
