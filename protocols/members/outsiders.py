"""Outsiders: an outsider is a peer that sends messages of a generation that is over, and is not in the present view. A
member tells it so (Stale). The outsider passes this on to the peers on its side of a split, some of which may be in the
view, and joins again.
"""

from __future__ import annotations

from collections.abc import Callable

from ..channel import Channel
from ..testpoints import sometimes
from ..transport import PeerId
from .backoff import Once
from .errors import Expelled
from .messages import Stale
from .roster import Roster


class Outsiders:
    """One peer's side: as a member it answers outsiders (peers outside the view that speak of a former generation); as
    an outsider itself it passes on that the view has changed. `expelled` is called when this peer turns out to be
    one."""

    def __init__(self, channel: Channel, roster: Roster, *, expelled: Callable[[], None]) -> None:
        self.refused = 0
        """The number of outsiders' messages that were refused."""
        self._channel, self._roster, self._on_expelled = channel, roster, expelled
        self._told: Once[PeerId] = Once(channel.endpoint.interval_s)

    def begin(self) -> None:
        """Start afresh in another view: outsiders may be told again."""
        self._told.clear()

    def refuse(self, sender: PeerId, generation: int) -> None:
        """If `generation`, which a message of `sender` names, is over, and this peer is a member, tell `sender` so, at
        most once an interval. To be called for senders that are not in the view."""
        roster = self._roster
        if roster.id in roster.view.ids and generation < roster.view.generation:
            self.refused += 1
            sometimes("an old generation was refused")
            if self._told.due(sender):
                self._channel.post(sender, Stale(roster.view.generation, roster.id, roster.view.everybody))

    def is_learner(self, peer: PeerId) -> bool:
        """Whether `peer` is a learner of the present view: in it, but no member yet, because it fetches the state."""
        return peer in self._roster.view.everybody and peer not in self._roster.view.ids

    def expel(self, stale: Stale) -> None:
        """Act on `stale`, by which the others have decided a view without this peer: pass it on to the peers on its
        side of a split, and have its waiters raise Expelled, so that this peer joins again. Does nothing if this peer
        has failed by another error, which ends its part."""
        if not isinstance(self._roster.failed, Expelled | None):
            return
        self._on_expelled()
        for peer in self._roster.alive if self._roster.id in self._roster.view.ids else ():
            if peer != self._roster.id:
                self._channel.post(peer, stale)
        self._roster.fail(Expelled(stale.contact))
