"""The port of memberships: what a conversation asks of whichever one it is given.

It holds for a `Membership`, whose members agree on views by Paxos, and for a `SwimMembership`, by which a peer of
thousands knows a few. A conversation that needs more is bound to one membership, and says so by its type: local SGD
takes a `Membership`, because all of its members have to agree who contributes to a round.

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
    """One peer's membership."""

    @property
    def me(self) -> Member:
        """This peer, as the others know it."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """The other peers that this peer works with: always the same object, whose content changes."""
        ...

    async def at_least(self, count: int) -> None:
        """Wait until there are at least `count` neighbours. Raises MembershipError when there never will be, and
        Expelled when this peer has to join again."""
        ...

    def lost(self, peer: PeerId, why: str) -> None:
        """This peer cannot work with `peer`. The membership may remove it from the neighbours, and it may become one
        again."""
        ...

    def leave(self, why: str) -> Awaitable[None]:
        """Leave of one's own will. When the returned awaitable is done, no peer counts on this one any more."""
        ...


class Log(Protocol):
    """The removals that a peer has seen: members that were lost, or have left."""

    @property
    def ever(self) -> int:
        """The number of removals so far."""
        ...

    def since(self, ever: int) -> list[Removal]:
        """The removals after the first `ever` of all, as far as they are kept."""
        ...


class Inviter(Protocol):
    """The run's invitation, as its members know it."""

    @property
    def present(self) -> Invitation | None: ...

    async def replace(self, invitation: Invitation | None) -> None:
        """Replace the present invitation, None: by none. Raises MembershipError."""
        ...


class RunMembers(Members, Protocol):
    """What a process asks of the membership of its run, beside what its conversation does: for the records, for stalls
    and for a run's beginning and end."""

    @property
    def terms(self) -> Terms: ...

    @property
    def view(self) -> View:
        """The members that this peer knows, itself among them once it is in the run. Where members agree on views, it
        is the same for all; else its generation is this peer's own count."""
        ...

    @property
    def knows_all(self) -> bool:
        """Whether a peer that comes into the view has come into the run just now; False: it has become a neighbour."""
        ...

    @property
    def leaders(self) -> tuple[PeerId, ...]:
        """The members that decide first and second who is given up, as far as this peer knows."""
        ...

    @property
    def failed(self) -> Exception | None:
        """Why this peer cannot go on as it is."""
        ...

    @property
    def removals(self) -> Log: ...

    @property
    def inviting(self) -> Inviter: ...

    @property
    def on_view(self) -> list[Callable[[View], None]]:
        """Called with each view that this peer is in."""
        ...

    @property
    def on_waiting(self) -> list[Callable[[str], None]]:
        """Called with the reason when this peer waits for others to come or to answer."""
        ...

    def found(self) -> None:
        """Found a run: this peer is its first member."""
        ...

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, tested again on each change. Raises the error that makes waiting hopeless."""
        ...

    async def finish(self) -> None:
        """This peer has finished. Returns when no other one needs it any more."""
        ...

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether a message of a sender that is in `generation` of its views counts."""
        ...

    def can_spare(self, peer: PeerId, *, reserve: bool = True) -> bool:
        """Whether the others can go on without `peer` and, with `reserve`, could still lose another one."""
        ...

    def suspect(self, peer: PeerId, why: str) -> None:
        """Go on without `peer`. It may come back."""
        ...

    def hold_off(self, peer: PeerId, seconds: float, why: str) -> None:
        """Let `peer` come back after so many seconds at the earliest."""
        ...

    def close(self) -> None: ...


class Way(Protocol):
    """How a peer gets into a run, and back into it."""

    async def enter(self, contact: PeerId) -> None:
        """Join through `contact`. Raises JoinRefused, PeerLost, MembershipError."""
        ...

    async def come_back(self, expelled: Expelled) -> None:
        """Join again, as the others have gone on without this peer. Raises MembershipError."""
        ...


if TYPE_CHECKING:

    def _is_of_the_port(membership: Membership) -> RunMembers:
        return membership
