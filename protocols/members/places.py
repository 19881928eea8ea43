"""Places: which learners give way to newcomers when a view is full.

The holder of an invite can fill a view with learners that never fetch the state. Hence a peer that has been a learner
for 16 patiences may lose its place to a newcomer. Learners that have never reported a state go first, and of these the
one that came first. A learner that gave way may join again; by then others have had a place.
On failure: every peer knows since when a learner has been in its views; only the coordinators to which the learner has
reported know that it holds a state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..testpoints import sometimes
from .view import Member, View

_SAFE_PATIENCES = 16
"""Patiences (the seconds of silence after which a peer is lost) during which a learner keeps its place: fewer than
those for which a newcomer keeps asking."""
GAVE_WAY = "it was a learner for long, and its place was wanted by another"


class Places:
    """One peer's record of the learners: since when each is in the view, and whether it has reported a state. By it,
    learners that have been there for long give way to newcomers (`for_one`). `patience_s`: the endpoint's patience, in
    seconds."""

    def __init__(self, patience_s: float) -> None:
        self._safe_s = _SAFE_PATIENCES * patience_s
        self._since_s: dict[int, float] = {}
        """When the life of each learner came into the view, on the loop's clock."""
        self._told: set[int] = set()

    def follow(self, view: View) -> None:
        """Record the learners of `view`, the present one, and forget all others."""
        now = asyncio.get_running_loop().time()
        self._since_s = {learner.life: self._since_s.get(learner.life, now) for learner in view.learners}
        self._told &= self._since_s.keys()

    def tells(self, learner: Member) -> None:
        """Record that `learner` has reported that it holds a state."""
        self._told.add(learner.life)

    def for_one(self, newcomer: Member, staying: Sequence[Member], learners: Sequence[Member]) -> list[Member] | None:
        """The `learners` that have to give way so that `newcomer` fits into the view beside the other learners and the
        peers in `staying`; empty: none has to. None: there is no room now."""
        left, give_way = list(learners), list[Member]()
        while not View(0, (*staying, *left), True).has_room(newcomer):
            old = [one for one in left if self._is_old(one)]
            if not old:
                return None
            sometimes("a learner gave way to a newcomer")
            first = min(old, key=lambda one: (one.life in self._told, self._since_s[one.life], one.since))
            left.remove(first)
            give_way.append(first)
        return give_way

    def _is_old(self, learner: Member) -> bool:
        since_s = self._since_s.get(learner.life)
        return since_s is not None and asyncio.get_running_loop().time() - since_s >= self._safe_s
