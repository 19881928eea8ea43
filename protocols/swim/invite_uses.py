"""The run's invitation under SWIM, where no view decides on it: members tell each other its changes and its uses.

An invitation is a key that guests share to join by. Each change of it has a number, and the change with the highest
number holds. The marks (hashes) of the keys that an invitation has let in are told to all too, and counted as its uses.
A member lets in no more keys than the invitation allows, as far as it has heard: newcomers that ask different members
in the same moment may together be more, at most as many for each of these members.

Cost: a message along each link when the invitation changes, or lets in a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..channel import Channel, Envelope
from ..members.invitation import KEYS_MAX, Invitation, mark
from ..members.invites import Invites
from ..members.messages import MEMBERS
from ..members.view import View
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .messages import Invited, Welcome
from .words import ID_LETTERS_MAX

_AHEAD_MAX = 1024


class InvitedKeys:
    """One peer's knowledge of the invitation and its uses. `invitation`: the one with which a founder begins the run;
    None: there is none. `view` returns this peer's own view; `others` the peers to tell. `changed` is called when this
    peer has changed the invitation, counted a use, or taken over another peer's message on them."""

    def __init__(
        self,
        channel: Channel,
        invitation: Invitation | None,
        view: Callable[[], View],
        others: Callable[[], Iterable[PeerId]],
        changed: Callable[[], None],
    ) -> None:
        self._channel, self._view, self._others, self._changed = channel, view, others, changed
        members = Channel(channel.endpoint, MEMBERS)
        self.invites = Invites(members, invitation, members=lambda: self._view().ids)
        self._number = 0
        self._used: dict[int, None] = {}
        """Marks of the keys that the present invitation has let in."""
        self._earlier: dict[int, None] = {}
        channel.on(Invited, self._on_invited)

    @property
    def present(self) -> Invitation | None:
        """The invitation that holds now; None: there is none."""
        return self.invites.present

    async def replace(self, invitation: Invitation | None) -> None:
        """Replace the present invitation (None: by none), and tell the other peers, without waiting for them. Does
        nothing if `invitation` has the guest key of the present one. Members that were let in by the former one
        stay."""
        if self.invites.guest == ("" if invitation is None else invitation.guest):
            return
        self._begin(self._number + 1, invitation)
        self._changed()
        self._tell()

    def why_not(self, key: PeerId) -> str:
        """Why `key` is not let in; "" if it may be."""
        return self.invites.why_not(key, self.invites.came_by(key))

    def let_in(self, key: PeerId) -> None:
        """Note that `key` is a member now. If it came by the present invitation, and for the first time, this counts as
        one use, and the other peers are told."""
        guest = self.invites.came_by(key)
        if guest and guest == self.invites.guest and mark(key) not in {*self._used, *self._earlier}:
            self._used[mark(key)] = None
            self._changed()
            self._tell()

    def told(self) -> Invited:
        """The message, for other peers, with all that this peer knows of the invitation."""
        return Invited(self._number, self.invites.present, tuple(self._used), tuple(self._earlier))

    def enter(self, welcome: Welcome) -> None:
        """Learn of the invitation from the `welcome` of the member that has let this peer in. Raises PeerMisbehaved for
        values that no honest peer can tell."""
        self._learn(welcome.invited)

    def seen(self, view: View) -> View:
        """`view` with the invitation as this peer knows it. Also lets the invitation's guests connect from now on."""
        present = self.invites.present
        if present is not None:
            present = replace(present, keys=len(self._used))
        view = replace(view, invitation=present, let_in=(*self._earlier, *self._used))
        self.invites.take(view)
        return view

    def _begin(self, number: int, invitation: Invitation | None) -> None:
        self._earlier = dict.fromkeys([*self._earlier, *self._used][-KEYS_MAX:])
        self._used, self._number = {}, number
        self.invites.take(replace(self._view(), invitation=invitation, let_in=tuple(self._earlier)))

    def _tell(self, but: PeerId = "") -> None:
        for peer in self._others():
            if peer != but:
                self._channel.post(peer, self.told())

    def _on_invited(self, envelope: Envelope) -> None:
        if envelope.sender in self._view().ids and self._learn(envelope.message):
            self._tell(but=envelope.sender)

    def _learn(self, told: Invited) -> bool:
        """Take over the invitation and its uses from a member's message. Returns whether any of it was new. Raises
        PeerMisbehaved for values that no honest peer can tell."""
        _check(told, self._number)
        if told.number < self._number:
            return False
        guest = "" if told.invitation is None else told.invitation.guest
        news = told.number > self._number or guest > self.invites.guest
        if news:
            self._begin(told.number, told.invitation)
        elif guest != self.invites.guest:
            return False
        more = [one for one in told.used if one not in self._used][: KEYS_MAX - len(self._used)]
        self._used |= dict.fromkeys(more)
        self._earlier = dict.fromkeys([*self._earlier, *told.earlier][-KEYS_MAX:])
        self._changed()
        return news or bool(more)


def _check(told: Invited, number: int) -> None:
    invitation = told.invitation
    sound = max(len(told.used), len(told.earlier)) <= KEYS_MAX and told.number <= number + _AHEAD_MAX
    if invitation is not None:
        sound = sound and 0 < len(invitation.guest) <= ID_LETTERS_MAX and (invitation.seconds or 0.0) >= 0.0
    if not sound:
        raise PeerMisbehaved(f"told of change {told.number} of the invitation, after {number}")
