"""The effects of the state machine: the calls by which it asks for something or tells something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..members.view import Member
from ..transport import PeerId


class Effects(Protocol):
    """All that `Swim` does. It calls these from within its own methods, and they must not call it back."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    def send(self, to: PeerId, message: object) -> None:
        """Send a message of `messages`, loose or not as its lane says."""
        ...

    def reach(self, member: Member) -> None:
        """From now on `member` may connect to this peer, and this peer may send to it: a member has vouched for it."""
        ...

    def lapse(self, peer: PeerId) -> None:
        """`peer`, for which a member has vouched, is let in no more by that."""
        ...

    def joined(self, member: Member) -> None:
        """`member` is a member now, or has a link with this peer."""
        ...

    def departed(self, member: Member, why: str, *, left: bool) -> None:
        """It is no more. `left`: of its own will."""
        ...

    def unknown_to(self, peer: PeerId) -> None:
        """The member `peer` does not know this peer, and has not lost it either."""
        ...

    def distrusts(self, peer: PeerId) -> None:
        """The word of `peer` on others no longer counts."""
        ...

    def starts(self) -> None:
        """Enough peers have gathered."""
        ...


# Events for a simulation's checkers and for measurements.


@dataclass(frozen=True, slots=True)
class Suspected:
    """A peer's probe of `peer`, in its life `life`, has failed."""

    peer: PeerId
    life: int


@dataclass(frozen=True, slots=True)
class DeclaredDead:
    """A peer has declared that life dead by its own probes."""

    peer: PeerId
    life: int


@dataclass(frozen=True, slots=True)
class HeardDead:
    """A peer has heard that that life was declared dead."""

    peer: PeerId
    life: int


@dataclass(frozen=True, slots=True)
class Refuted:
    """A peer has raised its incarnation to this."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Known:
    """What a peer remembers at the end of a period: so many members, lost members, and words on their way."""

    members: int
    graves: int
    rumours: int
