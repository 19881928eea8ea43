"""Inviting: how a member has the run's invitation revoked or replaced.

The member tells the coordinator (Reinvite), and each later coordinator, until a view has the new invitation. The next
change of the view decides it, when the members are not busy, so that all members agree on it.

Cost: one small message and a view.
On failure: Reinvite is sent again with each view, and when the coordinator is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..channel import Channel, Envelope
from .errors import MembershipError
from .invitation import Invitation
from .messages import Reinvite
from .roster import TRY_FOR, Roster

REINVITE_S = 2 * TRY_FOR
"""The most patiences (not seconds) that the members may take to agree on a new invitation."""


class Inviting:
    """One peer's wish to replace the run's invitation, and, as coordinator, the wishes of others. `consider` is called
    so that the coordinator leads a change of the view if there is a reason for one."""

    def __init__(self, channel: Channel, roster: Roster, consider: Callable[[], None]) -> None:
        self._channel, self._roster, self._consider = channel, roster, consider
        self._wish: Reinvite | None = None
        roster.on_news.append(self._pass_on)
        channel.on(Reinvite, self._on_reinvite)

    @property
    def present(self) -> Invitation | None:
        """The run's invitation, with the seconds that it is still valid; None: there is none."""
        return self._roster.invites.present

    async def replace(self, invitation: Invitation | None) -> None:
        """Replace the run's invitation by `invitation` (None: by none), and return when a view has it; at once, and
        without a change, if its guest key is that of the present one. Keys that were let in keep their place. Raises
        MembershipError when the members do not agree on it within 8 times the endpoint's patience, or when another
        member replaces the invitation at the same time; and the error of `Membership.failed`."""
        invites, within_s = self._roster.invites, REINVITE_S * self._channel.endpoint.patience_s
        if invites.guest == ("" if invitation is None else invitation.guest):
            return
        self._wish = wish = Reinvite(invites.guest, invitation)
        self._pass_on()
        try:
            async with asyncio.timeout(within_s):
                await self._roster.until(lambda: invites.guest != wish.replaces)
        except TimeoutError:
            raise MembershipError(
                f"the invite stays as it is: the members have not agreed within {within_s:g} s; try again when more "
                f"than half of them answer"
            ) from None
        finally:
            self._wish = None
        if invites.guest != ("" if invitation is None else invitation.guest):
            raise MembershipError("another member has changed the invite at the same time; look at it and try again")

    def _pass_on(self) -> None:
        roster = self._roster
        if (wish := self._wish) is None or wish.replaces != roster.invites.guest:
            return
        if roster.coordinator == roster.id:
            self._take(wish)
        elif roster.coordinator is not None:
            self._channel.post(roster.coordinator, wish)

    def _on_reinvite(self, envelope: Envelope) -> None:
        roster, wish = self._roster, envelope.message
        known = envelope.sender in roster.view.ids and wish.replaces == roster.invites.guest
        if known and roster.coordinator == roster.id:
            self._take(wish)

    def _take(self, wish: Reinvite) -> None:
        self._roster.invites.wish = wish
        self._consider()
