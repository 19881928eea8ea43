"""Invites: how newcomers that hold an invite have their own keys admitted, and which keys the present invitation still
lets in. A guest is a newcomer that is connected by the invite's key, not yet by its own.

An invite holds the secret of the run's guest key. With it a newcomer may do one thing: have its own key admitted. All
members are told, and from then on the newcomer is known by its own key. Many newcomers may use one invite at the same
time; their connections are told apart. A key is let in for good by the first view that contains it, and that view
counts it as one use. A key that was let in before takes no further use when it comes again, as long as views remember
it: they list the latest 1000 of these keys.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..channel import Channel, Envelope
from ..endpoint import Endpoint
from ..link.link import PeerLost
from ..transport import PeerId, is_guest, key_of
from ..wire.frames import message
from .invitation import KEYS_MAX, Invitation, mark
from .messages import MEMBERS, Reinvite
from .view import NOBODY, View

_GUESTS_MAX, _KEY_LETTERS_MAX = 10_000, 64
"""The most guests' keys that one member remembers, and the longest: a leaked invite must not fill its memory."""
_ASK = "ask for a new one: samovar invite RUN --new"


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Admit:
    """A guest asks a member to admit `key`, its own."""

    ask: int
    key: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to Admit. `why`: the reason if the key was not admitted, else ""."""

    ask: int
    why: str


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Vouch:
    """Tells a member that the sender, another member, has admitted `key` through the invitation with the guest key
    `guest`. The receiver admits the key, too, if it would admit it for an Admit. There is no answer."""

    key: str
    guest: PeerId


class Invites:
    """One peer's knowledge of the run's invitation, and of the invitation by which each key was admitted."""

    def __init__(
        self, channel: Channel, invitation: Invitation | None, *, members: Callable[[], Iterable[PeerId]]
    ) -> None:
        """`invitation`: the one with which a founder begins the run; None: there is none. `members` returns the peers
        that are told of admitted keys."""
        self._channel, self._members = channel, members
        self._view, self._marks = NOBODY, frozenset[int]()
        self._came_by: dict[PeerId, PeerId] = {}
        self._present: Invitation | None = None
        self._ends_s = math.inf
        self.wish: Reinvite | None = None
        """The replacement of the invitation that the coordinator is to put into the next view; None: none."""
        self._hold(invitation)
        channel.on(Admit, self._on_admit)
        channel.on(Vouch, self._on_vouch)

    @property
    def guest(self) -> PeerId:
        """The guest key of the present invitation; "" if there is none."""
        return "" if self._present is None else self._present.guest

    @property
    def present(self) -> Invitation | None:
        """The present invitation, with the seconds that it is still valid; None: there is none."""
        invitation = self._present
        if invitation is None or invitation.seconds is None:
            return invitation
        return replace(invitation, seconds=max(0.0, self._ends_s - asyncio.get_running_loop().time()))

    def came_by(self, key: PeerId, told: PeerId = "") -> PeerId:
        """The guest key of the invitation through which `key` was admitted, as far as this peer knows; otherwise
        `told`, which another peer has said. "": it needs no invitation."""
        return self._came_by.get(key, told)

    def why_not(self, key: PeerId, guest: PeerId) -> str:
        """The reason why `key`, which was admitted through the invitation with the guest key `guest`, may not join now;
        "" if it may. A key that the view lists, or remembers as let in (`View.let_in`), and a key without an invitation
        (`guest` ""), may always."""
        if not guest or mark(key) in self._marks or key in self._view.everybody:
            return ""
        invitation = self.present
        if invitation is None or invitation.guest != guest:
            return f"this invite has been revoked; {_ASK}"
        if invitation.used_up:
            return f"this invite has been used up: {invitation.keys} of {invitation.keys_max} keys; {_ASK}"
        return f"the time of this invite is over; {_ASK}" if invitation.seconds == 0.0 else ""

    def take(self, view: View) -> None:
        """Take over the invitation of `view`, to which the roster has gone on. A view without members means that this
        peer is in none; it then keeps the last invitation."""
        if view.ids:
            self._view, self._marks, self.wish = view, frozenset(view.let_in), None
            self._hold(view.invitation)

    def _hold(self, invitation: Invitation | None) -> None:
        before, self._present = self.guest, invitation
        seconds = None if invitation is None else invitation.seconds
        ends_s = math.inf if seconds is None else asyncio.get_running_loop().time() + seconds
        self._ends_s = min(self._ends_s, ends_s) if before == self.guest else ends_s
        if before == self.guest:
            return
        if before:
            self._channel.endpoint.dismiss(before)
            # Newcomers that are told of it (Uninvited) need a moment to hear it.
            asyncio.get_running_loop().call_later(self._channel.endpoint.patience_s, self._dismiss_those_of, before)
        if self.guest:
            self._channel.endpoint.admit(self.guest, guest=(self._channel.name, Admit))

    def _dismiss_those_of(self, guest: PeerId) -> None:
        """Dismiss the keys that were admitted through a revoked invitation and are in no view yet."""
        for key in [key for key, by in self._came_by.items() if by == guest]:
            if self.why_not(key, guest):
                del self._came_by[key]
                self._channel.endpoint.dismiss(key)

    def _on_admit(self, envelope: Envelope) -> None:
        if is_guest(envelope.sender):
            guest, key = key_of(envelope.sender), envelope.message.key
            why = self._why_not_admitted(key, guest)
            for member in () if why else self._members():
                if member != self._channel.endpoint.id:
                    self._channel.post(member, Vouch(key, guest))
            self._channel.post(envelope.sender, Admitted(envelope.message.ask, why))

    def _on_vouch(self, envelope: Envelope) -> None:
        if envelope.sender in self._members():
            self._why_not_admitted(envelope.message.key, envelope.message.guest)

    def _why_not_admitted(self, key: PeerId, guest: PeerId) -> str:
        """Admit `key` and return "", or return why not."""
        if why := self.why_not(key, guest):
            return why
        if len(key) > _KEY_LETTERS_MAX or len(guest) > _KEY_LETTERS_MAX:
            return f"a key has {_KEY_LETTERS_MAX} letters"
        if not self.knows(key, guest):
            return f"this invite was used for {_GUESTS_MAX:,} keys that one member has to remember, the most; {_ASK}"
        self._channel.endpoint.admit(key)
        return ""

    def knows(self, key: PeerId, guest: PeerId) -> bool:
        """Remember the invitation, by its guest key, through which `key` was admitted ("": none). Returns False when
        there is no room for it. The record of a key that is in the view is not changed: otherwise the holder of an
        invite could have a member turned away by revoking that invite."""
        if key in self._view.everybody and key not in self._came_by:
            return True
        if guest and (key in self._came_by or len(self._came_by) < _GUESTS_MAX):
            self._came_by[key] = guest
        return not guest or key in self._came_by


class Uses:
    """Counts the newcomers of the next view as uses of its invitation. `invitation`: the next view's, with the count so
    far."""

    def __init__(self, invites: Invites, view: View) -> None:
        wish, self.invitation, self._everybody = invites.wish, invites.present, view.everybody
        if wish is not None and wish.replaces == invites.guest:
            self.invitation = wish.invitation
        self._let_in = dict.fromkeys(view.let_in)

    @property
    def let_in(self) -> tuple[int, ...]:
        """The marks of the keys that were let in by an invite, for the next view: the latest 1000 of them."""
        return tuple(self._let_in)[-KEYS_MAX:]

    def let(self, key: PeerId, guest: PeerId) -> bool:
        """Let in `key`, which was admitted through the invitation with the guest key `guest` ("": it needs none), and
        count it. Returns False if that invitation does not allow it. A key that was let in before is not counted
        again."""
        if not guest or mark(key) in self._let_in or key in self._everybody:
            return True
        invitation = self.invitation
        if invitation is None or invitation.guest != guest or invitation.used_up or invitation.seconds == 0.0:
            return False
        self.invitation = replace(invitation, keys=invitation.keys + 1)
        self._let_in[mark(key)] = None
        return True


async def ask_admission(endpoint: Endpoint, contact: PeerId, key: PeerId) -> None:
    """Called by a guest: ask `contact` to admit `key`. Raises PeerLost, also with the reason when the contact
    refuses."""
    answer = await Channel(endpoint, MEMBERS).ask(contact, lambda ask: Admit(ask, key), answers=(Admitted,))
    if answer.message.why:
        raise PeerLost(contact, answer.message.why)
