"""The port between a membership and the conversation attached to it, which is the algorithm that the members run. The
conversation's state has versions, which the membership compares but does not interpret.

The decision on a view also decides from which version all members go on (`next_view`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .view import Decree, Version


@dataclass(frozen=True, slots=True)
class Standing:
    """The versions of the state that a peer holds. `state`: the last committed one. `result`: the version that the peer
    has made since and voted for (`Membership.vote`), equal to `state` if there is none; it counts as committed once
    more than half of the members have voted for it. `usual_s`: recent seconds from one committed version to the next;
    0: unknown."""

    state: Version
    result: Version
    usual_s: float = 0.0


NOTHING = Standing(Version(0, 0), Version(0, 0))
"""The standing of a peer whose conversation has no state that members share."""


class Attached(Protocol):
    """A conversation, as the membership to which it is attached sees it."""

    def standing(self) -> Standing:
        """The versions of the conversation's state that this peer holds."""
        ...

    def installed(self, decree: Decree) -> None:
        """Called when this peer has gone on to the decree's view, as a member or a learner. The members of that view
        continue from the decree's version of the state (`Decree.base`). A peer that does not hold it fetches it."""
        ...
