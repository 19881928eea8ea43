"""The effects of the state machine: the calls by which it sends messages, changes which peers may connect, and reports
which members come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..members.view import Member
from ..transport import PeerId


class Effects(Protocol):
    """All effects that `Swim` has. It calls these from within its own methods, and they must not call it back."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    def send(self, to: PeerId, message: object) -> None:
        """Send a message of `messages` to the peer `to`: as a loose one or by the link, as the message's lane says."""
        ...

    def reach(self, member: Member) -> None:
        """Let `member` connect to this peer from now on, and let this peer send to it: another member has vouched for
        it."""
        ...

    def lapse(self, peer: PeerId) -> None:
        """Undo `reach`: end the link to `peer`, which may connect no more, unless it may for another reason."""
        ...

    def joined(self, member: Member) -> None:
        """Called when `member` has become a member, or, where peers have links to a few only, has got a link with this
        peer."""
        ...

    def departed(self, member: Member, why: str, *, left: bool) -> None:
        """Called when `member` is no member any more, for the reason `why`: it was lost or restarted, it left, or the
        link with it was given up. `left`: it left of its own will."""
        ...

    def unknown_to(self, peer: PeerId) -> None:
        """Called when `peer`, a member here, does not know this peer and has not declared it lost either."""
        ...

    def distrusts(self, peer: PeerId) -> None:
        """Called when `peer` has accused others falsely too often: its statements on other peers no longer count
        here."""
        ...

    def starts(self) -> None:
        """Called when the run starts, because enough peers have gathered."""
        ...


# Events for a simulation's checkers and for measurements.


@dataclass(frozen=True, slots=True)
class Suspected:
    """Event for a simulation's checkers: a peer's probe of `peer`, in its life `life` (`words`), has failed, the first
    one since its last sign of life."""

    peer: PeerId
    life: int


@dataclass(frozen=True, slots=True)
class DeclaredDead:
    """Event for a simulation's checkers: a peer has declared the life `life` of `peer` dead and tells others so, after
    failed probes of its own or because the process has ended."""

    peer: PeerId
    life: int


@dataclass(frozen=True, slots=True)
class HeardDead:
    """Event for a simulation's checkers: a peer has heard that another one declared the life `life` of `peer` dead, or
    that it has left."""

    peer: PeerId
    life: int


@dataclass(frozen=True, slots=True)
class Refuted:
    """Event for a simulation's checkers: a peer has raised its own incarnation to this number, so as to refute that it
    is suspected or dead."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """Event for a simulation's checkers: a peer has learned that `peer`, in its life `life`, has raised its incarnation
    to this number."""

    peer: PeerId
    life: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Known:
    """Event for a simulation's checkers: the numbers of what a peer remembers at the end of a period: `members` that it
    knows, without itself; `graves`, which are members that were lost or have left; `rumours`, which are words that it
    still passes on."""

    members: int
    graves: int
    rumours: int
