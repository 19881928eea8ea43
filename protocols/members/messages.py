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
    """A newcomer asks a member to be let in. Without `ready` it only asks whether it would be let in, and which version
    the others have. `version`: the newcomer's. `layout`: digest of its model's layout; `model`: that layout in words.
    `votes`: the newcomer has found the record of its former life and still votes for it (`ledger`)."""

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
    """The contact's answer to Join: the contact's view and version."""

    ask: int
    view: View
    version: Version


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Refused:
    """The contact refuses a Join. `final`: all other members would refuse it too."""

    ask: int
    why: str
    final: bool


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Later:
    """Told to a newcomer: the members let it in after `seconds` at the earliest. `why`: the reason."""

    seconds: float
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Introduce:
    """The contact, which is in `generation`, tells the coordinator of the newcomer `member`. `version`: the newcomer's;
    `votes`: as in Join; `guest`: key of the invitation through which it was admitted, "" if it needs none."""

    member: Member
    version: Version
    generation: int
    votes: bool = False
    guest: PeerId = ""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Uninvited:
    """Told to a newcomer: its invitation does not let it in. `why`: the reason."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Reinvite:
    """Asks the coordinator to replace the invitation with the guest key `replaces` ("": there is none) by `invitation`
    (None: by none)."""

    replaces: PeerId
    invitation: Invitation | None


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Learned:
    """A learner tells the coordinator that it holds `version`. `took_s`: seconds that the fetch took."""

    generation: int
    version: Version
    took_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class TooSlow:
    """Told to a learner: its connection would slow down all others. It may become a member once it can fetch the state
    within `within_s` seconds."""

    generation: int
    within_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Propose:
    """The sender wants to lead the change of the view of `generation`. It asks for a promise to follow no lower
    `ballot`, and to commit no further result in this generation."""

    generation: int
    ballot: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Promise:
    """The answer to Propose. `promised`: the highest ballot that the sender has promised to follow; above `ballot` if
    it follows another proposer. `state`: its last committed version. `result`: the version it has voted for since,
    equal to `state` if none; `has`: it still holds that result. `decree`: the decree it adopted under the ballot
    `adopted` (0: none). `former`: it votes only on behalf of a former life."""

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
    """A quorum has promised. The sender asks to adopt `decree`."""

    generation: int
    ballot: int
    decree: Decree


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Adopted:
    """The answer to Adopt: the sender has adopted the decree, unless it has `promised` a higher ballot meanwhile."""

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
    """The receiver speaks of a later generation than the sender knows."""

    generation: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Suspicion:
    """Told to the coordinator: the sender has lost the member `peer`."""

    generation: int
    peer: PeerId
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Leave:
    """The sender leaves of its own will; the others go on without it."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Stale:
    """The receiver spoke of a generation that is over, and is not among the `members` of the present one: it has to
    join again through `contact`. It passes this on to the peers on its side of a split; some of them may be members."""

    generation: int
    contact: PeerId
    members: tuple[PeerId, ...]


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Anew:
    """The sender joins anew: this link ends here. A newcomer that it was to introduce asks another contact."""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Finished:
    """The sender has finished: it needs nothing more, and stays only until all others have finished too."""
