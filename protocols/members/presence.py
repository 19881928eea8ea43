"""Presence: a peer's stay in a run whose members share no state that all of them hold.

The peer founds the run or joins it, and joins again whenever the others have gone on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..transport import PeerId
from .errors import Expelled, NoQuorum
from .joining import Entry
from .membership import Membership
from .removals import Removal
from .view import View


class Presence:
    """One peer's stay in the run: enters the run, and joins again by itself whenever the others have gone on without
    this peer."""

    def __init__(self, membership: Membership, entry: Entry, interval_s: float) -> None:
        """`entry`: takes this peer into a run that exists, and back into it. `interval_s`: the most seconds that
        `pause` waits."""
        self._members, self._entry, self._interval_s = membership, entry, interval_s
        self._inside = asyncio.Lock()
        self.returns = 0
        """How often this peer has joined again."""
        self._first: View | None = None
        membership.on_view.append(self._on_view)

    @property
    def me(self) -> PeerId:
        """This peer's id."""
        return self._members.me.id

    @property
    def present(self) -> View:
        """The present view, of which this peer need not be a member."""
        return self._members.view

    @property
    def now(self) -> View | None:
        """The present view, if the run has begun and this peer is a member that can go on; None otherwise. Then `view`
        has to wait, or raises."""
        members = self._members
        view = members.view
        there = members.failed is None and view.started and members.me.id in view.ids
        return view if there else None

    @property
    def on_change(self) -> list[Callable[[], None]]:
        """The functions that are called whenever `has_left` may have changed."""
        return self._members.on_change

    @property
    def on_view(self) -> list[Callable[[View], None]]:
        """The functions that are called with each new view that this peer is in."""
        return self._members.on_view

    def went(self, role: str) -> Removal | None:
        """The latest removal of a member with this role, whether it was lost or has left; None: there was none, or it
        is not kept any more."""
        return next((one for one in reversed(self._members.removals) if one.role == role), None)

    async def leave(self, why: str) -> None:
        """Leave the run before it is over, for the reason `why`. Returns when the others do not need this peer any more
        (`Departure.leave`); the endpoint must stay open until then."""
        await self._members.leave(why)

    async def enter(self, contact: PeerId | None) -> bool:
        """Found the run (`contact` None) or join it through `contact`, and wait until it has begun and this peer is a
        member. Returns whether it had begun before this peer came. Raises MembershipError and the errors of
        `Entry.enter`."""
        if contact is None:
            self._members.found()
        else:
            await self._entry.enter(contact)
        await self.view()
        return self.late

    @property
    def late(self) -> bool:
        """Whether the run had begun before this peer came. Known from the first view on that has this peer, within
        `on_view` too; True before."""
        return self._first is None or self._members.me.id not in self._first.ids

    def _on_view(self, view: View) -> None:
        """Note the first view that has this peer: a newcomer to a run that has begun is a learner there."""
        self._first = self._first or view

    async def view(self) -> View:
        """Wait until the run has begun and this peer is a member, joining again if need be, and return the present
        view. Raises MembershipError; NoQuorum when this takes longer than `Terms.give_up_after_s` (None: no limit)."""
        members = self._members
        async with self._inside:
            try:
                async with asyncio.timeout(members.terms.give_up_after_s):
                    while True:
                        try:
                            await members.until(lambda: members.view.started and members.me.id in members.view.ids)
                            return members.view
                        except Expelled as expelled:
                            await self._entry.come_back(expelled)
                            self.returns += 1
            except TimeoutError:
                raise NoQuorum(f"this peer has found nobody for {members.terms.give_up_after_s:g} s") from None

    def has_left(self, view: View) -> bool:
        """Whether `view` is over for this peer: the run has another view, or its membership has failed (`failed`), if
        only until it has joined again."""
        return self._members.failed is not None or self._members.view.generation != view.generation

    async def during(self, view: View, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, and cancel it as soon as `view` is over for this peer (`has_left`); then return without an error,
        also if this peer was expelled: the next call of `view` joins again. Raises MembershipError, and the errors of
        `work`."""
        try:
            async with self._members.only_while(lambda: not self.has_left(view)):
                await work()
        except Expelled:
            return  # `view` joins again

    async def pause(self) -> None:
        """Wait for the next change of the membership (`Membership.notify`), or for `interval_s`, whichever is sooner. A
        change before the call is missed."""
        await self._members.change_within(self._interval_s)

    async def finish(self) -> None:
        """Tell the others that this peer has finished, and wait until all members that stay and that it can reach have.
        Returns without an error, and without joining again, if the others go on without this peer or the membership
        fails."""
        await self._members.finish()
