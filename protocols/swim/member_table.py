"""The member table: the members that one peer knows, and a bounded number of those that it has lost, called graves.

Where a peer has links to a few others only, these are its members here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from ..members.view import Member
from ..transport import PeerId
from .words import Kind, Word, alive, mark

_GRAVES_MAX = 64
"""The most lost members that are remembered. They are remembered so that old words do not bring them back, and so that
this peer can look for them again."""


class Status(IntEnum):
    """A member's state here. `DOUBTED`: it is said to be dead or to have left, and this peer's own probes have not
    confirmed that yet."""

    ALIVE = 0
    SUSPECT = 1
    DOUBTED = 2


@dataclass(slots=True, eq=False)
class Entry:
    """A member. `incarnation`: the highest that the member has told, as far as this peer knows; `described`: the
    incarnation in which it told the data in `member`; `accused`: the incarnation of the last word against it, by the
    peer `accuser`. `failed`: this peer's failed probes of it since its last sign of life, the first of them in the
    period `since`. `proven`: this peer has heard from the member itself. `bringer`: the peer that told of it. `told`:
    this peer has told others of its suspicion. `came`: the period in which it was entered. `digest`: the mark, a hash,
    of its life (`words.mark`)."""

    member: Member
    incarnation: int
    bringer: PeerId = ""
    described: int = 0
    status: Status = Status.ALIVE
    accused: int = 0
    accuser: PeerId = ""
    failed: int = 0
    since: int = 0
    proven: bool = False
    told: bool = False
    came: int = 0
    digest: int = 0

    @property
    def accuses(self) -> int:
        """1 + the incarnation in which this peer holds the member for suspect or dead; 0: it holds it for alive."""
        return 0 if self.status == Status.ALIVE else self.accused + 1


@dataclass(frozen=True, slots=True)
class Grave:
    """A member that was lost, or that has `left` of its own will. `by`: the peer that declared it dead, or itself if it
    has left."""

    member: Member
    incarnation: int
    by: PeerId
    left: bool

    @property
    def word(self) -> Word:
        """The word that the member is dead or has left, as the table knows it."""
        return Word(Kind.DEAD, self.member.id, self.member.life, self.incarnation, self.by)


class MemberTable:
    """The members that one peer knows, and a bounded number of those that it has lost. `me`: this peer. `room`: the
    most other members that it holds."""

    def __init__(self, me: Member, room: int) -> None:
        self.me, self.incarnation, self.room = me, 0, room
        self.entries: dict[PeerId, Entry] = {}
        self.graves: dict[PeerId, Grave] = {}
        self.forgotten: list[PeerId] = []
        """Lost members that are no longer remembered. The reader empties this list."""
        self.shunned: dict[PeerId, float] = {}
        """Peers that this peer's conversation cannot work with, and until when."""
        self.digest = 0
        """XOR of the marks of all lives in it, this peer's own too."""
        self._own = 0
        self.take(me)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)

    def take(self, me: Member, incarnation: int = 0) -> None:
        """Replace the description of this peer itself by `me`, with this incarnation."""
        self.digest ^= self._own
        self._own = mark(me.id, me.life)
        self.digest ^= self._own
        self.me, self.incarnation = me, incarnation

    def add(self, member: Member, incarnation: int, bringer: PeerId, period: int) -> Entry:
        """Enter a member that is not in the table, as alive, and return its entry; if it was among the lost ones, it is
        so no more. `bringer`: the peer that told of it; `period`: the present one."""
        assert member.id not in self.entries
        self.graves.pop(member.id, None)
        entry = Entry(member, incarnation, bringer, incarnation, digest=mark(member.id, member.life), came=period)
        self.entries[member.id] = entry
        self.digest ^= entry.digest
        return entry

    def drop(self, entry: Entry, by: PeerId, *, left: bool = False, grave: bool = True) -> None:
        """Remove a member. `grave`: remember it as lost, by the word of the peer `by`, or as having `left`, and forget
        the oldest of more than 64 such; False: do not remember it."""
        peer = entry.member.id
        del self.entries[peer]
        self.digest ^= entry.digest
        if grave:
            self.graves.pop(peer, None)
            incarnation = max(entry.incarnation, entry.accused)
            self.graves[peer] = Grave(entry.member, incarnation, by, left)
            if len(self.graves) > _GRAVES_MAX:
                self.forgotten.append(oldest := next(iter(self.graves)))
                del self.graves[oldest]

    def vacant(self, bringer: PeerId) -> bool:
        """Whether there is room for one more member that `bringer` tells of. Members that this peer has not heard from
        itself may fill at most half the table by the word of one bringer."""
        if len(self.entries) >= self.room:
            return False
        unproven = sum(one.bringer == bringer and not one.proven for one in self)
        return unproven < max(1, self.room // 2)

    def is_news(self, word: Word) -> bool:
        """Whether `word` may bring a new member: its peer is not in the table, and was not lost here in that
        incarnation or a later one."""
        grave = self.graves.get(word.id)
        known = word.id in self.entries or word.id == self.me.id
        return not known and (grave is None or word.incarnation > grave.incarnation)

    def shun(self, peer: PeerId, now_s: float, until_s: float) -> None:
        """Record that this peer has nothing to do with `peer` until the time `until_s`, in place of an earlier record.
        `now_s`: the present time on the same clock. The table acts on it in no way: `shuns` tells."""
        self.shunned = {one: end_s for one, end_s in self.shunned.items() if end_s > now_s} | {peer: until_s}

    def shuns(self, peer: PeerId, now_s: float) -> bool:
        """Whether the time until which this peer has nothing to do with `peer` (`shun`) is still to come at `now_s`."""
        return self.shunned.get(peer, now_s) > now_s

    def next_grave(self) -> Grave | None:
        """One of the lost members, each in turn; None: there is none but members that left of their own will."""
        for peer in list(self.graves):
            grave = self.graves.pop(peer)
            self.graves[peer] = grave
            if not grave.left:
                return grave
        return None

    @property
    def own_word(self) -> Word:
        """The word that this peer is alive, in its present incarnation."""
        return alive(self.me, self.incarnation)

    def words(self) -> tuple[Word, ...]:
        """Words on this peer itself, on all members, and on the lost ones, in this order."""
        entries = (alive(one.member, one.incarnation) for one in self)
        return (self.own_word, *entries, *(grave.word for grave in self.graves.values()))

    def describe(self, entry: Entry, member: Member, incarnation: int) -> None:
        """Replace the description of a member by `member`, which it has told in this incarnation; it may have, for
        instance, a new address."""
        entry.member, entry.described = member, incarnation
