"""The errors that end a peer's membership."""

from __future__ import annotations

from ..transport import PeerId


class MembershipError(Exception):
    """Raised when this peer cannot go on. The message says why and what to do."""


class NoQuorum(MembershipError):
    """Raised when too few members are left to decide on a view."""


class JoinRefused(MembershipError):
    """Raised when the run does not let this peer in."""


class Expelled(Exception):
    """Raised when this peer has to join again, through the member `contact`, as a rule because the others have decided
    a view without it. `why`: in words."""

    def __init__(self, contact: PeerId, why: str = "the others went on without this peer") -> None:
        super().__init__(f"{why}; joining again through {contact:.12}")
        self.contact, self.why = contact, why
