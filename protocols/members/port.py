"""The port of memberships: the methods that a conversation, an algorithm that peers run together, may call on any kind
of membership.

It holds for a `Membership`, whose members agree on views by Paxos, and for a `SwimMembership`, by which a peer of
thousands knows a few. A conversation that needs more works with one kind of membership only, which is the type of its
argument: local SGD takes a `Membership`, because all members have to agree which of them contribute to a round.

| | gossip | parameter server | local SGD |
|---|---|---|---|
| `me` | its place in a ring | its role, its shard | its data shard, its site |
| `neighbours.now` | draws or weighs partners | the servers and the workers, by their roles | the members of its view |
| `on_joined`, `on_left` | new weights; what a partner owes is void | shards move; a worker's clock counts no more | - |
| `at_least` | before it mixes at all | until there are servers | - (`Terms.founders` in its place) |
| `lost` | a partner that does not answer | a server, or a worker | a member out of reach |
| `leave` | each of them, when it goes before the end | the same | the same |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from ..channel import Envelope
from ..transport import PeerId
from .errors import Expelled
from .invitation import Invitation
from .neighbours import Neighbours
from .removals import Removal
from .terms import Terms
from .view import Member, View

if TYPE_CHECKING:
    from .membership import Membership


class Members(Protocol):
    """One peer's membership of a run, of any kind."""

    @property
    def me(self) -> Member:
        """This peer, as the others know it."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """The other peers that this peer works with. It is always the same object, whose content changes."""
        ...

    async def at_least(self, count: int) -> None:
        """Wait until this peer has at least `count` neighbours. Raises MembershipError when this peer cannot take part
        any more, and Expelled when it has to join again, also where it has so many neighbours."""
        ...

    def lost(self, peer: PeerId, why: str) -> None:
        """Report that this peer cannot work with `peer`, and why. The membership may remove it from the neighbours; it
        may become one again."""
        ...

    def leave(self, why: str) -> Awaitable[None]:
        """Leave the run of this peer's own will. The returned awaitable is done when no peer needs this one any more,
        or after twice the endpoint's patience. The endpoint must stay open until then."""
        ...


class Log(Protocol):
    """The removals that a peer has seen: members that were lost, and members that have left."""

    @property
    def ever(self) -> int:
        """The number of removals so far, including those no longer kept. A member that was removed, came back and was
        removed again counts twice."""
        ...

    def since(self, ever: int) -> list[Removal]:
        """The removals after the first `ever`, in order, as far as they are kept."""
        ...

    def gave_up(self, member: Member) -> bool:
        """Whether this peer has lost `member` in its present life, so that it did not join anew when it is back."""
        ...


class Inviter(Protocol):
    """The run's invitation, and the way to replace it."""

    @property
    def present(self) -> Invitation | None:
        """The run's invitation, with the seconds that it is still valid; None: there is none."""
        ...

    async def replace(self, invitation: Invitation | None) -> None:
        """Replace the run's invitation by `invitation` (None: by none). A `Membership` returns when a view has it, and
        raises MembershipError when the members do not agree on it in time; a `SwimMembership` returns at once, and the
        other peers are told."""
        ...


class RunMembers(Members, Protocol):
    """A membership of either kind, with all that is needed beyond `Members`: for the records, for slow peers, and for
    the run's beginning and end. A peer's process uses it, and conversations that run on either kind."""

    @property
    def terms(self) -> Terms:
        """The settings of the membership that all peers of the run share."""
        ...

    @property
    def view(self) -> View:
        """The present view of this peer. It is empty, with generation 0, before the peer has entered the run, and may
        be so again while it joins anew. A newcomer may first be among its `learners`, and not yet among its `members`.
        With a `Membership`, views of one generation are the same on all peers, though one peer may be some generations
        behind. With a `SwimMembership`, it is this peer and those that it works with, and counts only its own views."""
        ...

    @property
    def knows_all(self) -> bool:
        """Whether this peer knows all members, so that one that is new in its view has just joined the run, or is back
        after this peer could not work with it (`Log.gave_up`). False: this peer knows a few members, and a new one has
        only become its neighbour."""
        ...

    @property
    def leaders(self) -> tuple[PeerId, ...]:
        """The members that decide which members are given up, two at most: the first, and the one that replaces it.
        With a `SwimMembership` the first is this peer itself."""
        ...

    @property
    def failed(self) -> Exception | None:
        """The error that has ended this peer's part in the run; None: there is none. Expelled: this peer has to join
        again, and once it has, this is None again. Any other error, a MembershipError: it cannot take part any more.
        `until` raises the error, before it tests its condition."""
        ...

    @property
    def removals(self) -> Log:
        """The removals that this peer has seen."""
        ...

    @property
    def inviting(self) -> Inviter:
        """The run's invitation."""
        ...

    @property
    def on_view(self) -> list[Callable[[View], None]]:
        """The functions that are called with each view that this peer is in."""
        ...

    @property
    def on_waiting(self) -> list[Callable[[str], None]]:
        """The functions that are called with the reason when this peer waits for others to come or to answer."""
        ...

    def found(self) -> None:
        """Found a run, whose first member is this peer."""
        ...

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is tested at once, and again on each change of the membership. Raises the
        error of `failed`, also where the condition holds."""
        ...

    async def finish(self) -> None:
        """Tell the others that this peer has finished, and return when none of them needs it any more."""
        ...

    def take_back(self, contact: PeerId | None) -> None:
        """Make this peer, which has left, join again: its waiters raise Expelled, with a member that can be dialled as
        the contact, or else `contact`. If there is neither, this peer only counts as not leaving any more."""
        ...

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether to heed a message: its sender is among the members and, with a `Membership`, the `generation` of the
        view that it names is this peer's own, and that view is not being changed. With a `SwimMembership` the
        generation is ignored. A sender that is no member any more may be told so."""
        ...

    def can_spare(self, peer: PeerId, *, reserve: bool = True) -> bool:
        """Whether the other members can go on without `peer` and, with `reserve`, could lose one more; `reserve` is
        ignored where the quorum is fixed (`Terms.quorum`). Always true with a `SwimMembership`."""
        ...

    def suspect(self, peer: PeerId, why: str) -> None:
        """Have `peer` removed from the members, for the reason `why`; with a `SwimMembership` only from this peer's own
        view, for a while. It may come back."""
        ...

    def hold_off(self, peer: PeerId, seconds: float, why: str) -> None:
        """Do not let `peer` come back before so many `seconds` are over, for the reason `why`. Other peers do not know
        of this: a `Membership` keeps to it when newcomers are introduced to this peer, a `SwimMembership` in its own
        view."""
        ...

    def close(self) -> None:
        """Stop taking part, at once. Other peers are told nothing."""
        ...


class Way(Protocol):
    """The way of a peer into a run, and back into it."""

    async def enter(self, contact: PeerId) -> None:
        """Join the run through `contact`, and return when this peer is in the view. Raises JoinRefused, PeerLost and
        MembershipError, and CatchUpFailed where there is a state to fetch."""
        ...

    async def come_back(self, expelled: Expelled) -> None:
        """Join again after the others have gone on without this peer. Raises MembershipError."""
        ...


if TYPE_CHECKING:

    def _is_of_the_port(membership: Membership) -> RunMembers:
        return membership
