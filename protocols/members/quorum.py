"""The quorum: how many members of a view may decide the next one, and which version they must hold.

More than half of the members, or as many as the user fixes. (If half or fewer are enough, both halves of a split may go
on.)

Half of a view of n = 2k members is enough as well, if the other k lives are proven to be over and have left no record
(`ledger`), so that they vote no more. Two such sets have a member in common with each other, and with each majority:
 - k and k + 1 of 2k members overlap.
 - Let two sets of k be disjoint, P counted by p at the time t, Q counted by q at the time u. Each is the complement of
   lives that were over when it was counted. q is not in P, so q's life was over at t, hence u < t. Likewise t < u.
Before the run has started, only the half with the most senior member is enough, whichever members live. That half need
not know that the other lives are over, so the other half may not go on after its death either.
The half must be all living members: of 4, a member that knows of p3's death could count {p0, p1}, and one that knows of
p0's death {p2, p3}.
For an odd n, n - majority + 1 is a majority itself. And {a, b, c}: where a and b decide on {a, b, d}, install it and
are restarted, c is less than half, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from ..transport import PeerId
from .roster import Roster
from .view import Decree


class Quorum:
    """Counts quorums of the roster's present view. `fixed`: how many members are enough once the run has started; None:
    a majority."""

    def __init__(self, roster: Roster, fixed: int | None) -> None:
        self._roster, self.fixed = roster, fixed

    @property
    def needed(self) -> int:
        """The number of members that is enough, whichever members they are."""
        view = self._roster.view
        return view.majority() if self.fixed is None or not view.started else min(self.fixed, len(view.members))

    def enough(self, peers: Collection[PeerId]) -> bool:
        """Whether these members together may decide the next view."""
        view = self._roster.view
        if len(peers) >= self.needed:
            return True
        half = 2 * len(peers) == len(view.members)
        if not view.started:
            return half and view.by_seniority[0] in peers  # no result could be undone yet, and only one half has it
        return half and self.fixed is None and {*self._roster.living} == {*peers}

    def hopeless(self, answered: Collection[PeerId]) -> bool:
        """Whether no quorum can come together: the members that may still vote are too few, or all of them have
        `answered`. To be called when those that have answered are no quorum."""
        living = self._roster.living
        return not self.enough(living) or {*living} <= {*answered}

    def lacks(self, answered: Collection[PeerId]) -> str:
        """A clause for the user that names the members that have not `answered`."""
        members = self._roster.view.members
        missing = ", ".join(member.name for member in members if member.id not in answered)
        return f"only {len(answered)} of {len(members)} peers answer, {missing} not"

    def in_words(self, answered: Collection[PeerId], wanted: int) -> str:
        """A sentence for the user that says why the members that `answered` cannot go on: they are too few, or none of
        them has the state. `wanted`: number of the last version of the state that any of them knows of."""
        left = f"{len(answered)} of {len(self._roster.view.members)} peers are left"
        if self.enough(answered):
            return f"{left}, and none of them has version {wanted} of the state: restart the run"
        fewer = f"restart the others, or allow fewer with --quorum {len(answered)}"
        return f"{left}, {self.needed} are needed to go on; {fewer}"

    def has_base(self, decree: Decree) -> bool:
        """Whether a peer of the decree's view holds the decree's base, the version from which all go on, and that is
        not older than the present base: otherwise the change would undo a commit. Returns True without a check before
        the run has started, and where a fixed quorum below a majority does not guarantee this."""
        roster, view = self._roster, self._roster.view
        if not view.started or (self.fixed is not None and self.fixed < view.majority()):
            return True
        return bool(decree.donors) and (roster.given or decree.base.number >= roster.base.number)
