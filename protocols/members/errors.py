"""The errors that end a peer's membership."""

from __future__ import annotations

from ..transport import PeerId


class MembershipError(Exception):
    """Raised when this peer can no longer take part in the run. The message says why, and what the user can do."""


class NoQuorum(MembershipError):
    """Raised when too few members are left, or have answered in time, to decide on the next list of members, so that
    this peer cannot take part in the run any more."""


class JoinRefused(MembershipError):
    """Raised when the run does not let this peer in, whichever member it asks. The message gives the run's reason."""


class Expelled(Exception):
    """Raised when this peer has to join again, as a rule because the others have decided a view without it. `contact`:
    the member through which it joins; `why`: the reason, in words."""

    def __init__(self, contact: PeerId, why: str = "the others went on without this peer") -> None:
        super().__init__(f"{why}; joining again through {contact:.12}")
        self.contact, self.why = contact, why
