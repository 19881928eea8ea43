"""The port between a membership and the conversation attached to it: versions of a state, which the membership does not
interpret.

The decision on a view also decides from which version all members go on (`next_view`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .view import Decree, Version


@dataclass(frozen=True, slots=True)
class Standing:
    """The versions that a peer holds. `state`: the last committed one. `result`: the version that the peer has made
    since and voted for (`Membership.vote`), equal to `state` if there is none; it counts as committed once more than
    half have voted for it. `usual_s`: recent seconds from one committed version to the next; 0: unknown."""

    state: Version
    result: Version
    usual_s: float = 0.0


NOTHING = Standing(Version(0, 0), Version(0, 0))
"""The standing of a peer whose conversation has no state."""


class Attached(Protocol):
    """The conversation as the membership sees it."""

    def standing(self) -> Standing:
        """The versions of the conversation's state."""
        ...

    def installed(self, decree: Decree) -> None:
        """The decree's view holds, with this peer in it: all peers in it go on from the decree's version."""
        ...
