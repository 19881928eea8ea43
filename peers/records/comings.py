"""The events about other members in a peer's records: present, joined, left, lost, back, apart, silent, stalled."""

from __future__ import annotations

import math
from typing import Protocol

from ...protocols.clock import RunClock
from ...protocols.endpoint import Endpoint
from ...protocols.members.invitation import Invitation
from ...protocols.members.port import RunMembers
from ...protocols.members.removals import Removal
from ...protocols.members.view import Member, View
from ...protocols.stalls.messages import Stall
from ...protocols.transport import PeerId
from .event_names import EventName
from .records import Missing


class Tell(Protocol):
    """A function that writes an event. `about`: name of the peer that it concerns, "" for this peer; `why`: the reason;
    `work`: the work that `about` was doing; `key`, `about_role`: public key and role of `about`."""

    def __call__(
        self, event: EventName, *, about: str = "", why: str = "", work: str = "", key: str = "", about_role: str = ""
    ) -> None: ...


class Comings:
    """Writes the events that one peer sees of others, by `tell`. It notices waits for too few peers and refused
    messages by itself. The caller passes it each view (`follow`), each stall (`stalled`) and each exchange's number of
    members (`were_there`). `follow` writes nothing before `begin`; all other events are written at any time. That a
    member joined is written only once the run has started, and only where the membership knows all members. That two
    members cannot reach each other is written by these two and the first of the membership's `leaders`."""

    def __init__(self, endpoint: Endpoint, membership: RunMembers, clock: RunClock, tell: Tell) -> None:
        self._endpoint, self._membership, self._clock, self._tell = endpoint, membership, clock, tell
        self._own = endpoint.id
        membership.on_waiting.append(self._waits)
        membership.neighbours.on_away.append(self._is_away)
        membership.neighbours.on_back.append(lambda member: self._tell_of("back", member))
        endpoint.on_refused.append(lambda refusal: tell("refused", why=str(refusal)))
        self._known: View | None = None
        self._removals_told = 0
        self._events_told = 0
        self._members = 0

    def begin(self) -> None:
        """Begin to follow the members: from now on `follow` writes events."""
        self._known = self._membership.view

    def name_members(self) -> None:
        """Write an event for each other member that is there now."""
        for member in self._membership.view.members:
            if member.id != self._own:
                self._tell_of("present", member)

    def name_of(self, peer: PeerId) -> str:
        """The name of a member, or of one that was removed, which may have given something before; of any other peer
        the first letters of its id."""
        gone = (one.name for one in reversed(self._membership.removals.since(0)) if one.peer == peer)
        view = self._membership.view
        return view.name(peer) if view.anybody(peer) is not None else next(gone, view.name(peer))

    def _tell_of(self, event: EventName, member: Member, why: str = "") -> None:
        self._tell(event, about=member.name, why=why, key=member.id, about_role=member.attributes.role)

    def missing(self) -> tuple[Missing, ...]:
        """The peers that were lost, and did not leave, since the last call."""
        removals, self._removals_told = (
            self._membership.removals.since(self._removals_told),
            self._membership.removals.ever,
        )
        return tuple(self._missing(removal) for removal in removals if not removal.left)

    def _missing(self, removal: Removal) -> Missing:
        since = removal.since_s - self._clock.began_s
        return Missing(
            peer=removal.name, address=removal.address, since_s=since, why=removal.why, advice=removal.advice
        )

    def _waits(self, why: str) -> None:
        """Write that this peer waits, and an event for each member that does not answer. Such a member is not removed
        while too few answer."""
        self._tell("waiting", why=why)
        for member in self._membership.view.members:
            if (lost := self._endpoint.is_lost(member.id)) is not None:
                self._tell_of("silent", member, lost)

    def _is_away(self, member: Member, why: str) -> None:
        """Write that a member is lost which too few members are left to remove."""
        self._tell_of("lost", member, why)

    def were_there(self, members: int) -> None:
        """Note the number of members of an exchange. Write an event when this peer is the only one, and was not in the
        exchange before, unless others are there, from which it has only taken nothing."""
        neighbours = self._membership.neighbours
        if members == 1 and neighbours.there(member.id for member in neighbours.now):
            return
        if members == 1 < self._members:
            self._tell("alone", why="everybody else has gone; it trains on, and others may join")
        self._members = members

    def stalled(self, stall: Stall) -> None:
        """Write an event when a peer has stalled, or when its stall is over."""
        about = "" if stall.peer == self._own else self._membership.view.name(stall.peer)
        self._tell("goes_on" if stall.over else "stalled", about=about, why=stall.why, work=stall.work)

    def follow(self, view: View) -> None:
        """Write an event for each member that joined, left, was lost or is back since the view of the last call, for
        each pair of members that can no longer reach each other or can again, and for a change of the run's invite. Of
        a member that was restarted since then it writes the loss of its former process, and then that it joined. A loss
        that was written before, while too few were left to remove the member, is not written again.

        Nothing before `begin`. The first call after it compares with the membership's view at `begin`, and also writes
        the members that left or were lost before."""
        known, self._known = self._known, view if self._known is not None else None
        if known is None:
            return
        self._follow_edges(known, view)
        if why := reinvited(known.invitation, view.invitation):
            self._tell("invite", why=why)
        for removal in self._membership.removals.since(self._events_told):
            event: EventName = "left" if removal.left else "lost"
            # The neighbours follow the view only after this: they still know those that it lacks.
            if removal.left or not self._membership.neighbours.was_told(removal.peer, removal.life):
                why, role = removal.why.removeprefix("left: "), removal.role
                self._tell(event, about=removal.name, why=why, key=removal.peer, about_role=role)
        self._events_told = self._membership.removals.ever
        for member in view.members if known.started and self._membership.knows_all else ():
            before = known.member(member.id)
            if (before is None or before.life != member.life) and member.id != self._own:
                event = "back" if self._membership.removals.gave_up(member) else "joined"
                self._tell_of(event, member)

    def _follow_edges(self, known: View, view: View) -> None:
        """Write an event for each pair of members that can no longer reach each other, or can again. Both of them and
        the coordinator record it."""
        for edge in sorted({*known.apart} ^ {*view.apart}):
            ends = (edge.one, edge.other)
            if self._own in (*ends, *self._membership.leaders[:1]) and all(end in view.ids for end in ends):
                one, other = sorted(map(view.name, ends))
                if edge in view.apart:
                    why = f"{one} and {other} cannot reach each other; sums go another way"
                    self._tell("apart", about=one, why=why)
                else:
                    self._tell("together", about=one, why=f"{one} and {other} may reach each other again")


def reinvited(before: Invitation | None, now: Invitation | None) -> str:
    """The change of the run's invite from `before` to `now` (None: there is no invite), in words: revoked, replaced by
    one with another guest key, or changed: another `keys_max`, fewer `keys`, or more seconds. "": none of these.
    Further keys that the invite has let in, and fewer seconds that are left, are no change."""
    if now is None:
        return "" if before is None else "it was revoked: nobody joins by an invite now"
    keys = "any number of keys" if now.keys_max is None else f"{now.keys_max} keys"
    within = "" if now.seconds is None else f", for {now.seconds:,.0f} s"
    if before is None or before.guest != now.guest:
        return f"a new one lets in {keys}{within}"
    left_s, now_left_s = (math.inf if one.seconds is None else one.seconds for one in (before, now))
    if before.keys_max != now.keys_max or now.keys < before.keys or now_left_s > left_s:
        return f"the same one lets in {keys}, of which {now.keys} have come{within}: it was changed by a member"
    return ""
