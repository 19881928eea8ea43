"""The messages of SWIM. Probes, their answers and fresh words are loose: they may be lost, and are never sent again."""

from __future__ import annotations

from dataclasses import dataclass

from ..members.invitation import Invitation
from ..members.view import Member
from ..transport import PeerId
from ..wire.frames import Lane, PeerMisbehaved, message
from .words import INCARNATION_MAX, Word, check

SWIM = "swim"
"""The family of these messages, and the name of their channel."""
WORDS_SENT, WORDS_MAX = 6, 16
"""Words that one message carries, and the most that are read of one."""
MARKS_SENT, MARKS_MAX = 64, 1024
"""The fewest marks that one message carries if there are as many, and the most. They are told until the run has started
(`gathering`)."""

TABLE_MAX = 512
"""The most words in a table."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a peer tells with each probe and each answer. `life`, `incarnation`: its own. `accuses`: 1 + the incarnation
    of the receiver that it suspects or takes for dead; 0: it does not. `knows`: the receiver is among its members, or
    has a link with it. `started`: enough peers have gathered, as far as it has heard. `digest`: of its members, 0:
    it has links to a few only. `marks`: of peers that have gathered."""

    life: int
    incarnation: int
    accuses: int
    knows: bool
    started: bool
    digest: int
    words: tuple[Word, ...]
    marks: tuple[int, ...] = ()


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Probe:
    """Are you there?"""

    number: int
    beat: Beat


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to Probe."""

    number: int
    beat: Beat


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class AskProbe:
    """Asks a helper to probe `target`, which has not answered the sender. `accuses`: as in `Beat`, of the target."""

    number: int
    target: PeerId
    accuses: int


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Probed:
    """A helper's answer to AskProbe: the life and incarnation of the target that has answered it. `life` 0: it has not
    answered."""

    number: int
    life: int
    incarnation: int


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Tell:
    """Fresh words. No answer is due."""

    beat: Beat


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Knock:
    """A newcomer asks a member to be let in. `layout`: digest of its model's layout; `model`: that layout in words."""

    ask: int
    run: str
    member: Member
    layout: str
    model: str


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Invited:
    """The run's invitation since its change `number`, marks of the keys that it has let in (`used`), and of those that
    earlier ones have."""

    number: int
    invitation: Invitation | None
    used: tuple[int, ...]
    earlier: tuple[int, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Welcome:
    """The newcomer is let in, with this `incarnation` and shard of the data. `words`: on all members, also those that
    were lost, or, where peers have links to a few only, on the contact."""

    ask: int
    incarnation: int
    data_shard: int
    started: bool
    words: tuple[Word, ...]
    invited: Invited


@message(SWIM)
@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The newcomer is not let in. `final`: all other members would refuse it too."""

    ask: int
    why: str
    final: bool


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Table:
    """Words on all members that the sender knows, and on those that it has lost. `answer`: the receiver's are wished
    too."""

    words: tuple[Word, ...]
    answer: bool


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Walk:
    """`seeker` looks for one more link, by so many `steps` more. `path`: the peers that passed it on so far, the seeker
    first."""

    seeker: Member
    steps: int
    path: tuple[PeerId, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Found:
    """A walk has ended at `finder`. `path`: that of the walk as far as it is not gone back yet."""

    finder: Member
    path: tuple[PeerId, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Link:
    """The sender, which has so many `links`, wishes one with the receiver."""

    member: Member
    incarnation: int
    links: int


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Linked:
    """The answer to Link: `yes`, there is a link now, or no. `beside`: a peer to which the receiver is to make a link
    too, in place of the sender's; or, if there is none, one that it may ask next."""

    yes: bool
    member: Member
    incarnation: int
    beside: Member | None = None


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Instead:
    """The sender wishes the receiver to have a link with `newcomer`, which asks for it, in place of theirs."""

    newcomer: Member


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Vouch:
    """The sender has told `newcomer` to ask the receiver for a link."""

    newcomer: Member


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Unlink:
    """The sender gives up its link with the receiver. Both stay in the run."""


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Near:
    """The sender has links with these peers. Those hear of each other by it."""

    members: tuple[Member, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Goes:
    """The sender leaves of its own will."""

    why: str


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Done:
    """The sender has finished: it stays only until the receiver and all its other neighbours have."""


def check_beat(beat: Beat) -> None:
    """Raises PeerMisbehaved for a beat that no honest peer can send."""
    if max(beat.incarnation, beat.accuses - 1) > INCARNATION_MAX or beat.life == 0:
        raise PeerMisbehaved(f"claims incarnation {beat.incarnation} of life {beat.life}, and accuses {beat.accuses}")
    check_words(beat.words, WORDS_MAX)
    if len(beat.marks) > MARKS_MAX:
        raise PeerMisbehaved(f"told {len(beat.marks)} marks at once, at most {MARKS_MAX} are read")


def check_words(words: tuple[Word, ...], most: int) -> None:
    """Raises PeerMisbehaved for more than `most` words, or a word that no honest peer can say."""
    if len(words) > most:
        raise PeerMisbehaved(f"told {len(words)} words at once, at most {most} are read")
    for word in words:
        check(word)
