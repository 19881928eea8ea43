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
    """Raised when the others have decided a view without this peer: it has to join again, through the member
    `contact`."""

    def __init__(self, contact: PeerId) -> None:
        super().__init__(f"the others went on without this peer; joining again through {contact:.12}")
        self.contact = contact
