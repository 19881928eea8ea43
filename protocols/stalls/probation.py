"""Probation: a peer that was given up as too slow (`stragglers`) or for its numbers (`inquest`) is let in again later,
and later each time.

Such a peer may hold up the others again. So it is let in only after ten times the time that they have waited for it,
and is on probation for as long again: if it is given up during its probation, the waiting times add up. Hence it costs
the others about a tenth of their time at most, and a peer whose connection has recovered is soon back. The peer is told
how long it has to wait (`members.admission`).
On failure: only the peer that gave it up knows of the probation; another coordinator may let it in sooner.
"""

from __future__ import annotations

import asyncio

from ..members.port import RunMembers
from ..testpoints import sometimes
from ..transport import PeerId

_HELD_OFF = 10


class Probation:
    """The peers that this peer has on probation."""

    def __init__(self, membership: RunMembers) -> None:
        self._membership = membership
        self._known: dict[PeerId, tuple[float, float]] = {}
        """For each peer on probation: when its probation ends, on the loop's clock, and the seconds it has held up the
        others."""

    def add(self, peer: PeerId, held_up_s: float, why: str) -> None:
        """`peer` is about to be given up, because it has held up the others for `held_up_s` seconds."""
        now = asyncio.get_running_loop().time()
        self._known = {known: one for known, one in self._known.items() if now < one[0]}
        held_up_s += self._known.get(peer, (0.0, 0.0))[1]
        out_s = _HELD_OFF * held_up_s
        self._known[peer] = now + 2 * out_s, held_up_s
        self._membership.hold_off(peer, out_s, why)
        sometimes("a peer was held off")
