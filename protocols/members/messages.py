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
    """A newcomer asks any member to be let in. Without `ready` it only asks whether it would be let in, and which
    version the others have. `version`: the one that the newcomer has. `layout`: digest of its model's layout; `model`:
    that layout in words. `votes`: it has found the record of its former life and still votes for it (`ledger`)."""

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
    """The contact's answer to Join: its view, and the version that it has."""

    ask: int
    view: View
    version: Version


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Refused:
    """The contact's answer to a Join that it does not grant. `final`: no other member would grant it either."""

    ask: int
    why: str
    final: bool


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Later:
    """Told to a newcomer: we let you in only after `seconds`, and why."""

    seconds: float
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Introduce:
    """The contact, which is in `generation`, tells the coordinator of the newcomer `member`. `version`: the one that
    the newcomer has; `votes`: as in Join; `guest`: key of the invitation by which it came, "" if it needs none."""

    member: Member
    version: Version
    generation: int
    votes: bool = False
    guest: PeerId = ""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Uninvited:
    """Told to a newcomer: your invitation does not let you in, and why."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Reinvite:
    """Told to the coordinator: replace the invitation of the key `replaces` ("": there is none) by `invitation` (None:
    by none)."""

    replaces: PeerId
    invitation: Invitation | None


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Learned:
    """A learner tells the coordinator that it has `version`. `took_s`: how long the fetch took, in seconds."""

    generation: int
    version: Version
    took_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class TooSlow:
    """Told to a learner: your connection would slow down every round. You may become a member once you can fetch the
    state within `within_s` seconds."""

    generation: int
    within_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Propose:
    """I want to lead the change of the view of `generation`: promise to follow no lower `ballot`, and to commit no
    further result in this generation."""

    generation: int
    ballot: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Promise:
    """The answer to Propose. `promised`: the highest ballot I promised to follow; above `ballot` if I follow another
    proposer. `state`: my last committed version. `result`: the version I have voted for since, the same as `state` if
    none; `has`: I still hold it. `decree`: what I adopted under the ballot `adopted` (0: none). `former`: I vote only
    on behalf of a former life."""

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
    """A quorum has promised: adopt this decree."""

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
    """A quorum has adopted the decree: it holds."""

    decree: Decree


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Behind:
    """You speak of a later generation than I know of."""

    generation: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Suspicion:
    """Told to the coordinator: I have lost the member `peer`."""

    generation: int
    peer: PeerId
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Leave:
    """I leave of my own will; the round goes on without me."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Stale:
    """You speak from a generation that is over, and you are none of the `members` of the present one: join again
    through `contact`. The receiver passes this on to the peers on its side of a split; some of them may be members."""

    generation: int
    contact: PeerId
    members: tuple[PeerId, ...]


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Anew:
    """I begin anew: this link ends here. A newcomer that I was to introduce asks another contact."""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Finished:
    """I have committed the last round of the run and stay only until all others have committed it too."""
