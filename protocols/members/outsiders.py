"""Outsiders: who speaks from a generation that is over without being in the present view is told so (Stale).

It tells those on its side of a split, who may be in the view all the same, and joins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..endpoint import Endpoint, Envelope
from ..transport import PeerId
from ..witness import sometimes
from .errors import Expelled
from .messages import Stale
from .roster import Roster


class Outsiders:
    """Both sides of it. `expelled` is called when this peer turns out to be one."""

    def __init__(self, endpoint: Endpoint, roster: Roster, *, expelled: Callable[[], None]) -> None:
        self.refused = 0
        """Messages of outsiders."""
        self._endpoint, self._roster, self._on_expelled = endpoint, roster, expelled
        self._told_until: dict[PeerId, float] = {}
        endpoint.on(Stale, self._on_stale)

    def begin(self) -> None:
        """The roster has gone on to another view."""
        self._told_until.clear()

    def refuse(self, sender: PeerId, generation: int) -> None:
        """Somebody speaks from a generation without being in the view: if that generation is over, it is told so."""
        now, roster = asyncio.get_running_loop().time(), self._roster
        if roster.id in roster.view.ids and generation < roster.view.generation:
            self.refused += 1
            sometimes("an old generation was refused")
            if now >= self._told_until.get(sender, now):
                self._told_until[sender] = now + self._endpoint.interval_s
                self._endpoint.post(sender, Stale(roster.view.generation, roster.id, roster.view.everybody))

    def expel(self, stale: Stale) -> None:
        """The others went on without us. Those on our side of a split hear it from us."""
        self._on_expelled()
        for peer in self._roster.alive if self._roster.id in self._roster.view.ids else ():
            if peer != self._roster.id:
                self._endpoint.post(peer, stale)
        self._roster.fail(Expelled(stale.contact))

    def _on_stale(self, envelope: Envelope) -> None:
        stale: Stale = envelope.message
        roster = self._roster
        behind = roster.id in roster.view.everybody and stale.generation > roster.view.generation
        if behind and roster.id not in stale.members and roster.failed is None:
            self.expel(stale)
