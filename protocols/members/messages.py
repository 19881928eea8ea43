"""The messages by which peers get into a run, change its view and leave it."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport import PeerId
from ..wire.frames import message
from .invitation import Invitation
from .view import Decree, Member, Version, View

MEMBERS = "members"
"""The family of these messages, and the name of the channel of a run's membership."""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Join:
    """A newcomer asks any member to be let in; not `ready`, it only asks whether it would be, and where the others
    stand. It has `version`. `layout`: its model's digest; `model`: it in words. `votes`: it has found the record of its
    former life, whose votes it still casts (`ledger`)."""

    ask: int
    run: str
    member: Member
    layout: str
    model: str
    version: Version
    ready: bool
    votes: bool = False


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Welcome:
    """The contact's view, and the version that it has."""

    ask: int
    view: View
    version: Version


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Refused:
    """`final`: asking another member is of no use."""

    ask: int
    why: str
    final: bool


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Later:
    """Told to a newcomer who has held up the others: we do not let you in for so many seconds yet."""

    seconds: float
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Introduce:
    """The contact, who is in `generation`, tells the coordinator of a newcomer, which has `version`. `votes`: as in
    Join. `guest`: the key of the invitation by which it came; "": it needs none."""

    member: Member
    version: Version
    generation: int
    votes: bool = False
    guest: PeerId = ""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Uninvited:
    """Told to a newcomer: the invitation by which it came does not let it in, and why."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Reinvite:
    """Told to the coordinator: have `invitation`, None for none, take the place of that of the key `replaces`, "" where
    there is none."""

    replaces: PeerId
    invitation: Invitation | None


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Learned:
    """A learner tells the coordinator that it has `version`, and how long it took to fetch, in seconds."""

    generation: int
    version: Version
    took_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class TooSlow:
    """Told to a learner: all would wait for your connection. You may become a member once you fetch within so many
    seconds."""

    generation: int
    within_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Propose:
    """I would lead the change of the view of `generation`: promise to follow no lower `ballot`, and to commit no result
    any more in this generation."""

    generation: int
    ballot: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Promise:
    """The answer to Propose. `promised`: the highest ballot I promised to follow, a higher one when I follow another.
    `state`: what I have committed last. `result`: what I have voted for since, the same as `state` if nothing; `has`:
    I still have it. I have adopted `decree` under the ballot `adopted` (0: none). `former`: I only go on voting for a
    former life."""

    generation: int
    ballot: int
    promised: int
    state: Version
    result: Version
    has: bool
    adopted: int
    decree: Decree | None
    former: bool = False


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Adopt:
    """Enough have promised: adopt this decree."""

    generation: int
    ballot: int
    decree: Decree


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Adopted:
    """The answer to Adopt: I have adopted the decree, unless I `promised` a higher ballot meanwhile."""

    generation: int
    ballot: int
    promised: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Install:
    """Enough have adopted the decree: it holds."""

    decree: Decree


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Behind:
    """You speak of a later generation than I know of."""

    generation: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Suspicion:
    """Told to the coordinator: I have lost a member."""

    generation: int
    peer: PeerId
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Leave:
    """I would leave of my own will; the round goes on without me."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Stale:
    """You speak from a generation that is over, and you are none of the `members` of the present one: join again, by
    `contact`. Who hears it tells those on its side of a split, who may be members all the same."""

    generation: int
    contact: PeerId
    members: tuple[PeerId, ...]


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Anew:
    """I begin anew: this link ends here, and who waits to be let in through me asks another."""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Finished:
    """I have committed the last round of the run and stay only until all others have."""
