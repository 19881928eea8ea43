"""Postponed questions: a member that leads changes without being the coordinator is heeded later from try to try.

Every ballot keeps all members from committing. Two members may each take themselves for the coordinator for as long as
a link is broken. So a member may propose four times per hour at once, and has to wait longer each time after that, up
to a patience. Only its last question waits. As soon as it becomes the coordinator, it is heeded.

Such a member may lie, and a decree that many have adopted binds the coordinator, too (`binding`). So the coordinator
has the time to lead instead, if it is heard and was not caught lying (`echoes`): a decree of another member is adopted
three intervals after its ballot was promised, and not if the coordinator has led under a higher ballot by then. The
coordinator hears of the change after an interval (`reminders`), and waits another one itself. It adopts the other's
decree at once: a quorum may have lost it, and one member's adoption binds nobody in a view of four or more.

The first four decrees of a member within an hour need not wait so, if they go on from a version that this member
holds: the next member in seniority leads to remove a coordinator that is heard, but is too slow or hangs, and that
coordinator would lead instead for ever.

A question may also be put off for a given time: because its sender is one view ahead, or because the receiver is in no
view yet. It is heeded when a new view holds here, or when that time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from functools import partial
from typing import NamedTuple

from ..channel import Channel, Envelope
from ..transport import PeerId
from .backoff import Backoff
from .roster import Roster

_FREE = 4
"""How often per hour a member that this one does not see as coordinator may lead before it has to wait."""
_YIELDS = 3
"""The heartbeat intervals for which such a member's decree is not adopted. They are fewer than the two patiences after
which an honest proposer no longer waits for the answer."""


class _Heeded(NamedTuple):
    """A question that was heeded: its ballot; when, on the loop's clock; whether its sender has led more often than
    the four times an hour that are free."""

    ballot: int
    at_s: float
    often: bool


class Postponed:
    """The questions of other members that one member answers later. `handle` is called with each when its time has
    come."""

    def __init__(self, channel: Channel, roster: Roster, handle: Callable[[Envelope], None]) -> None:
        self._channel, self._roster, self._handle = channel, roster, handle
        self.courtesy_s = channel.endpoint.interval_s
        """Seconds that this member, as coordinator, waits before it leads a change while another member leads one."""
        self._impatient: Backoff[PeerId] = Backoff(channel.endpoint.interval_s, free=_FREE)
        self._due_s: dict[PeerId, float] = {}
        """When each member that proposed without being coordinator is heeded again, on the loop's clock."""
        self._heeded: dict[PeerId, _Heeded] = {}
        """The last question of each such member that was heeded in this view."""
        self._waiting: dict[PeerId, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        """The question of each member that waits, with its timer."""
        roster.on_news.append(self._heed_coordinator)

    def too_often(self, envelope: Envelope, promised: int) -> bool:
        """Put a question off if its ballot is above the `promised` one, its sender is not the coordinator as far as
        this member knows, and that sender has led too often recently. Returns whether it was put off. A question with
        such a ballot that is not put off sets `courtesy_s`, the time for which this member, as coordinator, lets
        another lead before it leads itself: the longer the sender has to wait for its next question, the shorter. A
        question of the coordinator sets it back to an interval."""
        sender, now = envelope.sender, asyncio.get_running_loop().time()
        if sender == self._roster.coordinator:
            self.courtesy_s = self._channel.endpoint.interval_s
        if sender == self._roster.coordinator or envelope.message.ballot <= promised:
            return False
        if sender in self._waiting:
            self._waiting.pop(sender)[0].cancel()
        if (due_s := self._due_s.get(sender, now)) > now:
            self.put_off(envelope, due_s - now)
            return True
        seconds, interval_s = self._impatient.again(sender), self._channel.endpoint.interval_s
        self.courtesy_s = interval_s * min(1.0, interval_s / max(seconds, interval_s))
        self._due_s = {one: until_s for one, until_s in self._due_s.items() if until_s > now}
        self._due_s[sender] = now + min(seconds, self._channel.endpoint.patience_s)
        self._heeded[sender] = _Heeded(envelope.message.ballot, now, seconds > 0.0)
        return False

    def must_yield(self, envelope: Envelope, liars: Set[PeerId], *, known: bool) -> bool:
        """Put a request to adopt off if the coordinator, as far as this member knows, is a third member that has not
        had the time to lead since the ballot was heeded (`too_often`), is heard, and is none of the known `liars`.
        `known`: this member holds the version from which the decree goes on; then a ballot among the first four of its
        sender in an hour is not put off. Returns whether it was put off."""
        coordinator, endpoint = self._roster.coordinator, self._channel.endpoint
        heeded = self._heeded.get(envelope.sender)
        if coordinator is None or coordinator in (envelope.sender, self._roster.id, *liars) or heeded is None:
            return False
        wait_s = heeded.at_s + _YIELDS * endpoint.interval_s - asyncio.get_running_loop().time()
        heard = endpoint.is_lost(coordinator) is None and endpoint.round_trip_s(coordinator) is not None
        free = known and not heeded.often
        if free or not heard or heeded.ballot != envelope.message.ballot or wait_s <= 0.0:
            return False
        self.put_off(envelope, wait_s)
        return True

    def put_off(self, envelope: Envelope, seconds: float) -> None:
        """Have `handle` called with the question after so many seconds. An earlier question of the same sender that
        still waits is dropped."""
        again = partial(self._channel.resume, envelope, self._handle)
        if (before := self._waiting.get(envelope.sender)) is not None:
            before[0].cancel()
        self._waiting[envelope.sender] = asyncio.get_running_loop().call_later(seconds, again), again

    def heed_all(self) -> None:
        """Have `handle` called with all questions that wait, right after the code that runs now, because another view
        holds here. The record of the questions heeded in the view before is dropped (`stop`)."""
        waiting = [again for _, again in self._waiting.values()]
        self.stop()
        for again in waiting:
            asyncio.get_running_loop().call_soon(again)

    def stop(self) -> None:
        """Drop all questions that wait, and the record of those that were heeded in this view."""
        for timer, _ in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        self._heeded.clear()

    def _heed_coordinator(self) -> None:
        """A peer has come or gone: a postponed question may be the coordinator's now."""
        coordinator = self._roster.coordinator
        if coordinator is not None and coordinator in self._waiting:
            timer, again = self._waiting.pop(coordinator)
            timer.cancel()
            again()
