"""Losses: peers that are no longer in the view, and why, for the record; and how long they are kept out.

A peer that was given up, has left or was restarted may come back at once; the second time within the hour after a
patience, then after twice as long each time (`backoff`), because each coming and going changes the view for all.
On loss: only the leader of the change knows these times; the next leader begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..channel import Channel
from ..transport import PeerId
from .backoff import Backoff
from .messages import Stale
from .roster import Roster
from .view import Decree, Gone, Member

_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Loss:
    """A peer that is no longer in the view. `since_s`: when it was missed, on the loop's clock."""

    peer: PeerId
    name: str
    address: str
    since_s: float
    why: str
    advice: str
    left: bool
    """Whether it went of its own will."""


class Losses(list[Loss]):
    """The latest losses, as one peer has seen them."""

    def __init__(self, channel: Channel, roster: Roster, hold_off: Callable[[PeerId, float, str], None]) -> None:
        super().__init__()
        self.ever = 0
        """The number of all losses so far."""
        self._roster, self._hold_off = roster, hold_off
        self._went: Backoff[PeerId] = Backoff(channel.endpoint.patience_s, free=1)

    def since(self, ever: int) -> list[Loss]:
        """The losses after the first `ever` of all, as far as they are kept."""
        return self[max(0, len(self) - (self.ever - ever)) :]

    def follow(self, decree: Decree, *, led: bool) -> None:
        """The roster is about to go on to the decree's view. `led`: this peer led it, so it tells those given up."""
        roster, view = self._roster, decree.view
        for member in (*roster.view.members, *roster.view.learners):
            if view.holds(member) or member.id == roster.id:
                continue
            loss = _loss_of(member, decree, roster)
            self.append(loss)
            self.ever += 1
            del self[:-_KEPT]
            if led:
                self._hold_off(member.id, self._went.again(member.id), loss.why)
                if view.anybody(member.id) is None and member.id not in roster.leaving:
                    roster.tell_former(member.id, Stale(view.generation, roster.id, view.everybody))


def _loss_of(member: Member, decree: Decree, roster: Roster) -> Loss:
    """The loss of `member`, which `decree` leaves out: its reason as `roster` knows it, or else the decree."""
    told = next((departed for departed in decree.departed if departed.peer == member.id), None)
    left = member.id in roster.leaving or (told is not None and told.left)
    unknown = Gone("the coordinator gave it up" if told is None else told.why, asyncio.get_running_loop().time())
    gone = roster.gone.get(member.id) or unknown
    why = f"left: {roster.leaving.get(member.id, gone.why)}" if left else gone.why
    advice = "" if left else "if it lives, it joins again by itself; else start it anew with the join line"
    return Loss(member.id, member.name, member.address, gone.since_s, why, advice, left)
