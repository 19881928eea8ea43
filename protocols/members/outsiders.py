"""Outsiders: a peer that speaks from a generation that is over, and is not in the present view, is told so (Stale).

The outsider passes this on to the peers on its side of a split, some of which may be in the view, and joins again.
"""

from __future__ import annotations

from collections.abc import Callable

from ..channel import Channel, Envelope
from ..testpoints import sometimes
from ..transport import PeerId
from .backoff import Once
from .errors import Expelled
from .messages import Stale
from .quorum import Quorum
from .roster import Roster


class Outsiders:
    """One peer's side of this, as outsider or as member. `expelled` is called when this peer turns out to be an
    outsider."""

    def __init__(self, channel: Channel, roster: Roster, quorum: Quorum, *, expelled: Callable[[], None]) -> None:
        self.refused = 0
        """The number of outsiders' messages that were refused."""
        self._channel, self._roster, self._quorum, self._on_expelled = channel, roster, quorum, expelled
        self._told: Once[PeerId] = Once(channel.endpoint.interval_s)
        channel.on(Stale, self._on_stale)

    def begin(self) -> None:
        """The roster has gone on to another view."""
        self._told.clear()

    def refuse(self, sender: PeerId, generation: int) -> None:
        """`sender`, which is not in the view, speaks from `generation`: if that is over, tell it so."""
        roster = self._roster
        if roster.id in roster.view.ids and generation < roster.view.generation:
            self.refused += 1
            sometimes("an old generation was refused")
            if self._told.due(sender):
                self._channel.post(sender, Stale(roster.view.generation, roster.id, roster.view.everybody))

    def believes(self, teller: PeerId) -> bool:
        """Whether this peer believes `teller` about later views. It believes a member. It believes a learner only where
        too few members are left to decide a view, because an invite is enough to become a learner."""
        roster = self._roster
        learner = teller in roster.view.everybody and teller not in roster.view.ids
        return teller in {*roster.addresses, *roster.view.ids} or (learner and not self._quorum.enough(roster.alive))

    def expel(self, stale: Stale) -> None:
        """The others have decided a view without this peer. Pass this on to the peers on its side of a split."""
        self._on_expelled()
        for peer in self._roster.alive if self._roster.id in self._roster.view.ids else ():
            if peer != self._roster.id:
                self._channel.post(peer, stale)
        self._roster.fail(Expelled(stale.contact))

    def _on_stale(self, envelope: Envelope) -> None:
        stale: Stale = envelope.message
        roster = self._roster
        roster.view.check_sense(stale.generation)
        behind = roster.id in roster.view.everybody and roster.view.may_precede(stale.generation)
        if behind and self.believes(envelope.sender) and roster.id not in stale.members and roster.failed is None:
            self.expel(stale)
