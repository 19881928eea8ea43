"""The messages of SWIM. Probes, their answers and fresh words are loose: they may be lost, and are never sent again. A
word is a statement of a peer on another one; a life is a number that a peer draws when it joins; an incarnation is a
number that it raises to refute that it is suspected or dead (`words`)."""

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
"""The most words that are put into one message, and the most that a receiver takes from one."""
MARKS_SENT, MARKS_MAX = 64, 1024
"""The fewest marks in one message, if there are as many, and the most. Marks are told until the run has started
(`gathering`)."""

TABLE_MAX = 512
"""The most words in a table."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The sender's state, which goes with each probe and each answer. `life`, `incarnation`: its own. `accuses`: 0
    where the sender takes the receiver for alive; else 1 + the incarnation in which it suspects the receiver or takes
    it for dead. `knows`: the receiver is among the sender's members, or has a link with it. `started`: the run has
    started, as far as the sender has heard. `digest`: a checksum over its members and itself; 0: it has links to a few
    only. `words`: statements on peers that it passes on. `marks`: hashes of peers that have gathered, until the run has
    started."""

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
    """Asks the receiver for an Ack, to see whether it is alive."""

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
    """Asks a helper to probe `target`, which has not answered the sender. `number`: that of the sender's own probe;
    Probed repeats it. `accuses`: as in `Beat`, of the target in place of the receiver."""

    number: int
    target: PeerId
    accuses: int


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Probed:
    """A helper's answer to AskProbe: the life and incarnation with which the target has answered it. `life` 0: the
    target has not answered in time, or the helper does not probe it."""

    number: int
    life: int
    incarnation: int


@message(SWIM, lane=Lane.LOOSE)
@dataclass(frozen=True, slots=True)
class Tell:
    """Carries fresh words in its beat. No answer is due."""

    beat: Beat


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Knock:
    """A newcomer asks a member to let it into the run `run`. `layout`: digest of its model's layout; `model`: that
    layout in words."""

    ask: int
    run: str
    member: Member
    layout: str
    model: str


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Invited:
    """The run's invitation as its change with that `number` has left it; None: there is none. `used`: marks (hashes) of
    the keys that it has let in; `earlier`: of those that earlier invitations have let in."""

    number: int
    invitation: Invitation | None
    used: tuple[int, ...]
    earlier: tuple[int, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Knock: the newcomer is let in, with this `incarnation` and shard of the data. `started`: the run
    has started. `words`: on all members and lost members, or, where peers have links to a few only, on the contact
    alone. `invited`: the invitation."""

    ask: int
    incarnation: int
    data_shard: int
    started: bool
    words: tuple[Word, ...]
    invited: Invited


@message(SWIM)
@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The answer to Knock: the newcomer is not let in, for the reason `why`. `final`: all other members would refuse it
    too."""

    ask: int
    why: str
    final: bool


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Table:
    """Words on all members that the sender knows, and on those that it has lost. `answer`: the receiver shall answer
    with its own Table."""

    words: tuple[Word, ...]
    answer: bool


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Walk:
    """`seeker` looks for one more link; this message is passed on along links `steps` more times. `path`: the peers
    that it has passed, the seeker first."""

    seeker: Member
    steps: int
    path: tuple[PeerId, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Found:
    """The answer to Walk, passed back along the same path: the walk has ended at `finder`, which `seeker` may ask for a
    link. `path`: the peers that the walk has passed, from the seeker to the receiver of this message."""

    finder: Member
    path: tuple[PeerId, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Link:
    """The sender asks the receiver for a link. `links`: how many the sender has now."""

    member: Member
    incarnation: int
    links: int


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Linked:
    """The answer to Link. `yes`: there is a link now. `beside`: a neighbour of the sender with which the receiver shall
    make a link too. If `yes`, that link and the new one replace the link between the sender and that neighbour; if not,
    the receiver asks that neighbour instead. None: no such neighbour."""

    yes: bool
    member: Member
    incarnation: int
    beside: Member | None = None


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Instead:
    """The sender asks the receiver, a neighbour, to accept a link with `newcomer`. Once there is one, the receiver
    gives up its link with the sender, if it has more links than it wishes for."""

    newcomer: Member


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Vouch:
    """The sender vouches for `newcomer`, which it has told to ask the receiver for a link: the receiver lets it in."""

    newcomer: Member


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Unlink:
    """The sender gives up its link with the receiver. Both stay in the run."""


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Near:
    """The sender has links with these peers. It is sent to its neighbours, which so learn of each other."""

    members: tuple[Member, ...]


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Goes:
    """The sender leaves the run of its own will, for the reason `why`."""

    why: str


@message(SWIM)
@dataclass(frozen=True, slots=True)
class Done:
    """The sender has finished training. It stays until the receiver and all its other neighbours have finished too."""


@message(SWIM)
@dataclass(frozen=True, slots=True)
class AskDone:
    """The sender has finished, and has not heard that the receiver has: if it has, it answers Done."""


def check_beat(beat: Beat) -> None:
    """Raises PeerMisbehaved for a beat without a life, with an incarnation or an accusation beyond the limit, with too
    many words or marks, or with a word that `words.check` refuses."""
    if beat.incarnation > INCARNATION_MAX or beat.life == 0:
        raise PeerMisbehaved(f"claims incarnation {beat.incarnation} of life {beat.life}")
    check_accusation(beat.accuses)
    check_words(beat.words, WORDS_MAX)
    if len(beat.marks) > MARKS_MAX:
        raise PeerMisbehaved(f"told {len(beat.marks)} marks at once, at most {MARKS_MAX} are read")


def check_accusation(accuses: int) -> None:
    """Raises PeerMisbehaved for an accusation, 1 + an incarnation or 0, of an incarnation that no peer comes to."""
    if accuses > INCARNATION_MAX + 1:
        raise PeerMisbehaved(f"accuses incarnation {accuses - 1}")


def check_words(words: tuple[Word, ...], most: int) -> None:
    """Raises PeerMisbehaved for more than `most` words, or a word that `words.check` refuses."""
    if len(words) > most:
        raise PeerMisbehaved(f"told {len(words)} words at once, at most {most} are read")
    for word in words:
        check(word)
