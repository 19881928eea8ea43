"""Probation: who was given up as too slow (`stragglers`), or for its numbers (`inquest`), is let in again later, and
later each time.

It would hold up the others again. So it is let in only after ten times as long as they have waited for it, and is on
probation for as long again: if it is given up then, all that time counts together. So it takes about a tenth of their
time at most, and whose connection is well again comes soon. It is told so, and waits (`members.admission`).
On loss: only who gave it up knows; when another comes to coordinate, it may come sooner.
"""

from __future__ import annotations

import asyncio

from ..members.membership import Membership
from ..testpoints import sometimes
from ..transport import PeerId

_HELD_OFF = 10


class Probation:
    """What one peer knows of it."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._known: dict[PeerId, tuple[float, float]] = {}
        """Of who is on probation: until when, on the loop's clock, and for how long it has held up the others."""

    def add(self, peer: PeerId, held_up_s: float, why: str) -> None:
        """It is about to be given up, for having held up the others for so long."""
        now = asyncio.get_running_loop().time()
        self._known = {known: one for known, one in self._known.items() if now < one[0]}
        held_up_s += self._known.get(peer, (0.0, 0.0))[1]
        out_s = _HELD_OFF * held_up_s
        self._known[peer] = now + 2 * out_s, held_up_s
        self._membership.hold_off(peer, out_s, why)
        sometimes("a peer was held off")
