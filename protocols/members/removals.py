"""Removals: records which peers were removed from the view and why, for the run's records, and decides how long each
has to wait before it may come back.

A peer that was given up, has left or was restarted may come back at once. The second time within an hour it must wait
one patience, and each further time twice as long (`backoff`), because each coming and going changes the view for all.
On failure: only the leader of the change knows these times; the next leader begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..channel import Channel
from ..transport import PeerId
from .attributes import SERVER
from .backoff import Backoff
from .messages import Stale
from .roster import Roster
from .view import Decree, Gone, Member

_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Removal:
    """One member or learner that was removed from the view. `since_s`: the time on the loop's clock since which it was
    missing, or that of the removal where this peer had not missed it; `advice`: what the user may do, "" for a peer
    that left; `life`, `role`: the member's."""

    peer: PeerId
    name: str
    address: str
    since_s: float
    why: str
    advice: str
    left: bool
    """Whether the peer left of its own will."""
    life: int
    role: str


class RemovalLog(list[Removal]):
    """The latest 1024 removals that one peer has seen, the oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.ever = 0
        """The number of removals so far, including those no longer kept."""

    def add(self, removal: Removal) -> None:
        """Append `removal`, count it, and drop the oldest one if more than 1024 are kept."""
        self.append(removal)
        self.ever += 1
        del self[:-_KEPT]

    def since(self, ever: int) -> list[Removal]:
        """The removals after the first `ever`, in order, as far as they are kept."""
        return self[max(0, len(self) - (self.ever - ever)) :]

    def gave_up(self, member: Member) -> bool:
        """Whether this peer has lost `member` in its present life, as far as removals are kept. Then the member did not
        join anew: this peer only works with it again."""
        return any(one.peer == member.id and one.life == member.life and not one.left for one in self)


class Removals(RemovalLog):
    """The removals from a roster's views. `hold_off` keeps a peer out for so many seconds."""

    def __init__(self, channel: Channel, roster: Roster, hold_off: Callable[[PeerId, float, str], None]) -> None:
        super().__init__()
        self._roster, self._hold_off = roster, hold_off
        self._went: Backoff[PeerId] = Backoff(channel.endpoint.patience_s, free=1)

    def follow(self, decree: Decree, *, led: bool) -> None:
        """Record the removal of each other member and learner that is not in the decree's view, or only with a new
        life. The caller calls it before the roster takes that view. `led`: this peer led the change, so it tells those
        peers, and does not let in again for a while those that were removed before."""
        roster, view = self._roster, decree.view
        for member in (*roster.view.members, *roster.view.learners):
            if view.holds(member) or member.id == roster.id:
                continue
            removal = _removal_of(member, decree, roster)
            self.add(removal)
            if led:
                self._hold_off(member.id, self._went.again(member.id), removal.why)
                if view.anybody(member.id) is None and member.id not in roster.leaving:
                    roster.tell_former(member.id, Stale(view.generation, roster.id, view.everybody))


def _removal_of(member: Member, decree: Decree, roster: Roster) -> Removal:
    """The removal of `member`. The reason is the roster's if it knows one, else the decree's."""
    told = next((departed for departed in decree.departed if departed.peer == member.id), None)
    left = member.id in roster.leaving or (told is not None and told.left)
    unknown = Gone("the coordinator gave it up" if told is None else told.why, asyncio.get_running_loop().time())
    gone = roster.gone.get(member.id) or unknown
    why = f"left: {roster.leaving.get(member.id, gone.why)}" if left else gone.why
    return removal_of(member, gone.since_s, why, left=left)


def removal_of(member: Member, since_s: float, why: str, *, left: bool) -> Removal:
    """The record of the removal of `member`, with advice to the user unless it has left of its own will."""
    role = member.attributes.role
    line = "the join line, with serve in place of join" if role == SERVER else "the join line"
    advice = "" if left else f"if it lives, it joins again by itself; else start it anew with {line}"
    return Removal(member.id, member.name, member.address, since_s, why, advice, left, member.life, role)
