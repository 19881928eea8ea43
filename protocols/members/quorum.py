"""The quorum: how many members of a view may decide the next one, and what they have to have.

More than half, or as many as `quorum` says. (With half or fewer, both halves of a split may go on.)

Half of a view of n = 2k members is enough as well, if the other k lives are proven to be over and have left no record
(`ledger`), so that they vote no more. Two such sets have a member in common with each other, and with each majority:
 - k and k + 1 of 2k members overlap.
 - Let two sets of k be disjoint, P counted by p at the time t, Q counted by q at the time u. Each is the complement of
   lives that were over when it was counted. q is not in P, so q's life was over at t, hence u < t. Likewise t < u.
Before the run has started it is the half with the most senior member, and no other, whoever lives: it need not know
that the others are over, so they may not go by its death either.
It has to be all that live: of 4, one that knows of p3's death could count {p0, p1}, one that knows of p0's {p2, p3}.
For an odd n, n - majority + 1 is a majority itself. And {a, b, c}: where a and b decide on {a, b, d}, install it and
are started anew, c is less than half, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from ..transport import PeerId
from .roster import Roster
from .view import Decree


class Quorum:
    """Of the present view of `roster`. `fixed`: how many are enough once the run has started, None: more than half."""

    def __init__(self, roster: Roster, fixed: int | None) -> None:
        self._roster, self.fixed = roster, fixed

    @property
    def needed(self) -> int:
        """How many are enough, whoever they are."""
        view = self._roster.view
        return view.majority() if self.fixed is None or not view.started else min(self.fixed, len(view.members))

    def enough(self, peers: Collection[PeerId]) -> bool:
        """Whether so many members may decide the next view."""
        view = self._roster.view
        if len(peers) >= self.needed:
            return True
        half = 2 * len(peers) == len(view.members)
        if not view.started:
            return half and view.by_seniority[0] in peers  # there is no result yet to be undone, and one such half
        return half and self.fixed is None and {*self._roster.living} == {*peers}

    def hopeless(self, answered: Collection[PeerId]) -> bool:
        """Whether there will never be enough: all who may vote still have `answered`, or would be too few."""
        living = self._roster.living
        return not self.enough(living) or {*living} <= {*answered}

    def in_words(self, answered: Collection[PeerId], wanted: int) -> str:
        """Why those are too few; `wanted`: the last round that any of them knows of."""
        left = f"{len(answered)} of {len(self._roster.view.members)} peers are left"
        if self.enough(answered):
            return f"{left}, and none of them has the result of round {wanted}: restart the run"
        fewer = f"restart the others, or allow fewer with --quorum {len(answered)}"
        return f"{left}, {self.needed} are needed to go on; {fewer}"

    def has_base(self, decree: Decree) -> bool:
        """Whether one of those who are there has what the next view is to go on from, and that is what this one does,
        or later: to go on without would undo a commit. It matters only where two quorums always meet."""
        roster, view = self._roster, self._roster.view
        if not view.started or (self.fixed is not None and self.fixed < view.majority()):
            return True
        return bool(decree.donors) and (roster.given or decree.base.round >= roster.base.round)
