"""The messages by which peers get into a run, change its view (the agreed list of members) and leave it.

`ask`: the number of a question, which its answer repeats. `generation`: that of the sender's view. `ballot`: the number
of a proposal for the next view (Paxos).
"""

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
    the others have. `version`: the version of the state that the newcomer holds. `layout`: digest of its model's
    layout; `model`: that layout in words. `votes`: the newcomer has found the record of its former life and still votes
    for it (`ledger`)."""

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
    """The contact's answer to Join: it does not refuse the newcomer, which is no member by this. If the Join was
    `ready`, the newcomer is introduced to the coordinator, and Install brings the view that has it, unless Uninvited or
    Later comes. `view`: the contact's present view; `version`: the last version of the members' common state that the
    contact has made (`Standing.result`), (0, 0) if there is no such state."""

    ask: int
    view: View
    version: Version


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Refused:
    """The contact refuses a Join, for the reason `why`. `final`: all other members would refuse it too."""

    ask: int
    why: str
    final: bool


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Later:
    """Tells a newcomer that the sender, its contact or the coordinator, does not let it in before `seconds` are over,
    for the reason `why`, in words: it has to ask again then. Other members may not know of this, and may let it in
    sooner."""

    seconds: float
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Introduce:
    """A contact tells the coordinator of the newcomer `member`; or a member that joins anew tells of itself (AskAnew).
    `version`: the version of the state that the newcomer holds. `generation`: that of the contact's view, or, in an
    answer to AskAnew, of the asking peer's. `votes`: as in Join. `guest`: key of the invitation through which the
    newcomer was admitted, "" if it needs none."""

    member: Member
    version: Version
    generation: int
    votes: bool = False
    guest: PeerId = ""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class AskAnew:
    """Asks a member that another one has introduced in a new life whether it joins anew. If so it answers with an
    Introduce of itself, of the same `generation`, that of the sender's view; else there is no answer."""

    generation: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Uninvited:
    """Tells a newcomer that it is not let in, and why: its invitation does not let it in, or the run is over."""

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
    """A learner tells the coordinator that it holds `version`. `took_s`: seconds that the fetch took; 0: it had
    nothing to fetch."""

    generation: int
    version: Version
    took_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class TooSlow:
    """Tells a learner that its connection would slow down all others. It stays a learner, and may become a member once
    it can fetch the state within `within_s` seconds."""

    generation: int
    within_s: float


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Propose:
    """The sender wants to lead the change of the view of `generation`. It asks the receiver, a member, to promise to
    follow no lower `ballot`, and to commit no further result in this generation. The answer is Promise."""

    generation: int
    ballot: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Promise:
    """The answer to Propose. `promised`: the highest ballot that the answering member has promised to follow; it is
    above `ballot` if the member follows another proposer. `state`: its last committed version. `result`: the version
    that it has voted for since, equal to `state` if none; `has`: it still holds that result. `decree`: the decree that
    it adopted under the ballot `adopted` (0: none). `former`: it votes only on behalf of a former life."""

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
    """The proposer, to which a quorum has promised to follow `ballot`, asks a member to adopt `decree`. The answer is
    Adopted, or Promise where the member waits before it adopts."""

    generation: int
    ballot: int
    decree: Decree


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Adopted:
    """The answer to Adopt. `promised` is equal to `ballot` if the member has adopted the decree, and higher if it has
    promised a higher ballot and has not."""

    generation: int
    ballot: int
    promised: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Install:
    """Tells the receiver that the decree holds, because a quorum has adopted it: it should go on to the decree's
    view."""

    decree: Decree


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Confirm:
    """Asks the receiver whether the decree with this `mark` (a hash) holds, of which the sender has been told; mark 0:
    whether a view without the sender holds. `generation`: that of the sender's view. The answer is Confirmed; a peer in
    another view, later than the sender's, tells of that view instead (Install, Stale)."""

    generation: int
    mark: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Confirmed:
    """The answer to Confirm. `word`: 0, the answering peer has not joined yet, or joins anew; 1, none of the others; 2,
    it has adopted the decree; 3, the decree's view is its present one. After word 1 or 2 it answers again, with 3, when
    it goes on to that view."""

    mark: int
    word: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Behind:
    """Tells the generation that the sender is in: to a peer that has named a later one, and, a patience after the
    sender went on to that view, to the peer by whose word it did. A receiver in a later view tells of that view
    (Install), at most once an interval. One in an earlier view answers with its own Behind: it has heard of a later
    generation, and asks for its view."""

    generation: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Suspicion:
    """Tells the coordinator that the sender cannot work with the member `peer`, for the reason `why`: it is lost, holds
    up the others, or joins anew. If `peer` is the coordinator itself, this is sent to the most senior of the other
    members that stay."""

    generation: int
    peer: PeerId
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Leave:
    """Tells the others in the view that the sender leaves, and why: of its own will, and they go on without it, or
    because too few members are left to decide a view."""

    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Stale:
    """Tells the receiver that it is not in the view of `generation`, so that it has to join again through `contact`. It
    is sent to a member that this view has removed, and to a peer that speaks of a generation that is over. `members`:
    the view's members and learners. The receiver passes this on to the peers on its side of a split; some of them may
    be in that view."""

    generation: int
    contact: PeerId
    members: tuple[PeerId, ...]


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Anew:
    """Tells the receiver that the sender joins anew, and that their link ends here. If the sender was to introduce the
    receiver, a newcomer, the receiver has to ask another contact."""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Restarted:
    """Tells a member that counts on the former `life` of the sender that it is over, and that the sender does not vote
    on its behalf."""

    life: int


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Finished:
    """Tells the others in the view that the sender has finished: it needs nothing more, and stays only until all others
    have finished, too."""
