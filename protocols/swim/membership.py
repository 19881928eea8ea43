"""The membership of a run by SWIM: the port of memberships (`members.port`) over the state machine (`swim`).

Each peer has a view of its own: itself and the members that it knows, or has links to. No two peers need to have the
same view. There is no coordinator, and no peer decides for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..channel import Channel, Envelope
from ..link.link import BEGAN_ANEW
from ..members.backoff import Backoff
from ..members.errors import Expelled
from ..members.invitation import Invitation
from ..members.neighbours import UNLINKED, UNREACHABLE, Neighbours
from ..members.removals import RemovalLog, removal_of
from ..members.states import Moved, State
from ..members.terms import Terms
from ..members.view import NOBODY, Member, View
from ..members.waiting import Waiting
from ..testpoints import witness
from ..transport import PeerId
from .admission import Admission
from .driver import Driver
from .ending import Ending
from .invite_uses import InvitedKeys
from .member_table import MemberTable
from .suspicion import ANEW
from .timing import Timing

if TYPE_CHECKING:
    from ..members.port import RunMembers

WHOLE_ROOM = 255
"""The most other members that a peer knows where each peer knows all."""


class SwimMembership(Waiting):
    """One peer's membership of a run by SWIM: has the state machine probe other members, and makes this peer's views of
    what that finds. `links`: how many links this peer wishes to have; None: each peer knows all members. `terms`:
    values that all peers of the run share. `invitation`: the run's invitation, as far as this peer knows at first;
    None: there is none."""

    def __init__(
        self, channel: Channel, me: Member, terms: Terms, links: int | None, invitation: Invitation | None = None
    ) -> None:
        super().__init__()
        endpoint = channel.endpoint
        self.terms, self.neighbours, self.removals = terms, Neighbours(), RemovalLog()
        self.on_view: list[Callable[[View], None]] = []
        self.view = NOBODY
        """This peer and its neighbours. The generation counts this peer's own views."""
        table = MemberTable(replace(me, life=endpoint.draw(), since=1), WHOLE_ROOM)
        self._driver = Driver(
            channel,
            table,
            Timing(period_s=endpoint.interval_s),
            founders=terms.founders,
            links=links,
            changed=self._refresh,
        )
        self._ending = Ending(channel, self._driver, self)
        alone = View(0, (table.me,), False)
        self.inviting = InvitedKeys(
            channel,
            invitation,
            view=lambda: self.view if self.view.ids else alone,
            others=lambda: list(table.entries),
            changed=self._refresh,
        )
        self._admission = Admission(
            channel, self._driver, terms, self.inviting, self._ending, lambda: self.view.generation > 0
        )
        self._let_go = Backoff[PeerId](endpoint.patience_s)
        self._went: dict[PeerId, str] = {}
        """Members that went since the last view, and why."""
        self._driver.on_departed.append(self._departed)
        self._driver.on_unknown.append(self._unknown_to)
        endpoint.on_lost.append(self._lost)

    @property
    def me(self) -> Member:
        """This peer, as it describes itself to others."""
        return self._driver.swim.table.me

    @property
    def knows_all(self) -> bool:
        """Whether each peer knows all members; False: it has links to a few."""
        return self._driver.swim.overlay is None

    @property
    def leaders(self) -> tuple[PeerId, ...]:
        """The first two of this peer's own view. The first is this peer itself: it decides for itself."""
        return tuple(self.view.by_seniority)[:2]

    # Waiting

    async def at_least(self, count: int) -> None:
        """Wait until this peer has at least `count` neighbours. Raises the error of `failed`."""
        await self.until(lambda: len(self.neighbours.now) >= count)

    # Coming and going

    def found(self) -> None:
        """Found a run: this peer is its first member, and alone in its first view."""
        self._driver.begin()
        self._refresh(enters=True)

    async def knock(self, contact: PeerId) -> None:
        """Ask `contact` to let this peer into the run, and enter. Where peers have links to a few only, `view` stays as
        it is until the first link. Raises JoinRefused; PeerLost when the contact or another member may be asked again;
        PeerMisbehaved for a malformed answer."""
        welcome = await self._admission.knock(contact)
        if not self.view.generation:
            self._driver.begin()
        self._admission.enter(welcome, contact)
        if self._driver.swim.overlay is None:
            self._refresh(enters=True)

    def leave(self, why: str) -> asyncio.Task[None]:
        """Leave the run of this peer's own will. The returned task is done when other members have acknowledged it, or
        after twice the endpoint's patience."""
        return asyncio.create_task(self._ending.leave(why), name="leaving")

    def take_back(self, contact: PeerId | None) -> None:
        """Make this peer, which has left, join again: its waiters raise Expelled, with a member that can be dialled as
        the contact, or else `contact`. If there is neither, they raise nothing. What this peer knows of the members is
        old by now: it is dropped, and the member that lets this peer in tells it anew. Until then `view` stays as it
        was. To be called only where each peer knows all members."""
        swim = self._driver.swim
        known = [entry.member for entry in swim.table if entry.member.dialable]
        self._ending.take_back()
        self._driver.begin_anew()
        swim.table.shunned.clear()
        self._went.clear()
        if known:
            self._driver.reach(known[0])
            contact = known[0].id
        if contact is not None:
            self.fail(Expelled(contact, "this peer was away"))

    async def come_back(self, contact: PeerId) -> None:
        """After `take_back`: ask `contact` once to let this peer in again. Raises as `knock`."""
        await self.knock(contact)
        self.failed = None
        self._ending.came_back()
        self._refresh(enters=True)

    async def finish(self) -> None:
        """Tell the others that this peer has finished, and wait until all members that it knows have, too
        (`Ending.finish`)."""
        await self._ending.finish(self.me.id)

    def close(self) -> None:
        """Probe and answer no longer. Nothing is announced."""
        self._admission.close()
        self._driver.close()

    def lost(self, peer: PeerId, why: str) -> None:
        """Report that a conversation cannot work with `peer`, because of `why`. This peer's view and neighbours are
        without it for a while, which begins at one patience and doubles with each report, up to an hour. Its link is
        dropped where this peer has links to a few. It stays a member, and other peers are told nothing. Does nothing if
        `peer` is no member here."""
        self._shun(peer, self._let_go.again(peer), why)

    def suspect(self, peer: PeerId, why: str) -> None:
        """Keep `peer` out of this peer's view and neighbours for a while, as `lost` does."""
        self.lost(peer, why)

    def hold_off(self, peer: PeerId, seconds: float, why: str) -> None:
        """Keep `peer` out of this peer's view and neighbours for `seconds` seconds, or longer if it is kept out
        already. Does nothing if `peer` is no member here."""
        self._shun(peer, seconds, why)

    def can_spare(self, peer: PeerId, *, reserve: bool = True) -> bool:
        """True: the run goes on with any number of peers."""
        return True

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether the sender is in this peer's view. `generation` is ignored: each peer counts its own views."""
        return envelope.sender in self.view.ids

    def _shun(self, peer: PeerId, seconds: float, why: str) -> None:
        table, now, overlay = self._driver.swim.table, self._now(), self._driver.swim.overlay
        entry = table.entries.get(peer)
        if entry is None:
            return
        if not table.shuns(peer, now):
            self.removals.add(removal_of(entry.member, now, why, left=False))
        table.shun(peer, now, max(now + seconds, table.shunned.get(peer, now)))
        asyncio.get_running_loop().call_at(table.shunned[peer], self._refresh)
        if overlay is not None:
            self._driver.do(lambda: overlay.unlink(entry))
        self._went[peer] = UNREACHABLE
        self._refresh()

    # What the state machine tells

    def _lost(self, peer: PeerId, why: str) -> None:
        """The endpoint has lost `peer`: remove it if its process has ended, else probe it at once and have nothing to
        do with it for a while."""
        swim = self._driver.swim
        if (entry := swim.table.entries.get(peer)) is None:
            return
        if self._driver.has_ended(peer):
            self._driver.do(lambda: swim.suspicion.bury(entry, why, told=True))
        else:
            swim.detector.hasten(peer)
            if why != BEGAN_ANEW:
                self.lost(peer, why)

    def _departed(self, member: Member, why: str, left: bool) -> None:
        done = self._ending.departed(member.id)
        is_over = left or why == ANEW or (self._driver.has_ended(member.id) and not done)
        self._went[member.id] = why if is_over or why == UNLINKED else UNREACHABLE  # perhaps it is only cut off
        if why != UNLINKED and not self._driver.swim.table.shuns(member.id, self._now()):
            why = f"left: {why}" if left else "left: it has finished" if done else why
            self.removals.add(removal_of(member, self._now(), why, left=left or done))

    def _unknown_to(self, peer: PeerId) -> None:
        """`peer` does not know this peer, perhaps after a very long partition: ask it to let this peer in again."""
        self._admission.knock_again(peer)

    def _refresh(self, *, enters: bool = False) -> None:
        """Make a new view if members have come or gone, or the run has started, and this peer is in the run. `enters`:
        it enters the run."""
        swim, now = self._driver.swim, self._now()
        table = swim.table
        if not (enters or self.view.generation or table.entries) or self.failed is not None:
            return
        if not self.view.generation:
            witness(Moved(State.OUTSIDE, State.MEMBER))
        others = [entry.member for entry in table if not table.shuns(entry.member.id, now)]
        me = replace(table.me, since=0)  # to itself each peer is the most senior: it decides for itself
        members = tuple(sorted((me, *others), key=lambda member: member.rank))
        view = self.inviting.seen(View(self.view.generation, members, swim.gathering.started))
        if _news(view) != _news(self.view):
            self.view = replace(view, generation=view.generation + 1)
            went, self._went = self._went, {}
            self.neighbours.become(others, lambda member: went.get(member.id, UNREACHABLE))
            for told in self.on_view:
                told(self.view)
        self.notify()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _news(view: View) -> tuple[object, ...]:
    """The parts of a view whose change makes a new view; the time for which its invitation is still valid is none of
    them."""
    invitation = None if view.invitation is None else replace(view.invitation, seconds=None)
    return view.members, view.started, invitation, view.let_in


if TYPE_CHECKING:

    def _is_of_the_port(membership: SwimMembership) -> RunMembers:
        return membership
