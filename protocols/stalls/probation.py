"""Probation: a peer that was given up because it was too slow (`stragglers`, `stalls`) or sent wrong numbers
(`inquest`) is let in again later, and later each time.

Such a peer may hold up the others again. So it is let in only after ten times the seconds for which they have waited
for it, and is then on probation for as long again. If it is given up during its probation, the seconds add up. Hence it
costs the others about a tenth of their time at most, and a peer whose connection has recovered is back soon. The peer
is told how long it has to wait, under a `Membership` an hour at most (`members.admission`): a peer for which the others
wait longer than six minutes each time costs them more.

On failure: only the peer that gave it up knows of the probation; another coordinator may let it in sooner.
"""

from __future__ import annotations

import asyncio

from ..members.port import RunMembers
from ..testpoints import sometimes
from ..transport import PeerId

_HELD_OFF = 10


class Probation:
    """The peers that this peer has given up and that are not to be let in yet, or are on probation. The membership
    keeps out a peer (`hold_off`); here are kept only the end of its probation and the seconds for which it has held up
    the others, which are forgotten after that end. Times are on the running loop's clock."""

    def __init__(self, membership: RunMembers) -> None:
        self._membership = membership
        self._known: dict[PeerId, tuple[float, float]] = {}
        """For each peer on probation: when its probation ends, on the loop's clock, and the seconds it has held up the
        others."""

    def add(self, peer: PeerId, held_up_s: float, why: str) -> None:
        """Note that `peer`, which the caller is about to give up, has held up the others for `held_up_s` seconds, and
        have the membership refuse it for ten times as long. If it was still on probation, the seconds for which it held
        up the others before are added. `why`: the reason, for the peer."""
        now = asyncio.get_running_loop().time()
        self._known = {known: one for known, one in self._known.items() if now < one[0]}
        held_up_s += self._known.get(peer, (0.0, 0.0))[1]
        out_s = _HELD_OFF * held_up_s
        self._known[peer] = now + 2 * out_s, held_up_s
        self._membership.hold_off(peer, out_s, why)
        sometimes("a peer was held off")
