"""Trust: how often each peer has broken the rules of late, and when it is cut off for it."""

from __future__ import annotations

from ..transport import PeerId, is_guest
from .links import GUESTS_MAX

_FAULTS_MAX = 16
_REFUSED_MAX = 1024


class Trust:
    """A peer is cut off after 16 faults. One is forgiven every interval, so a peer that mends its ways comes back, and
    a flood costs no more than a frame an interval. Guests share a key, and each of them may come again over another
    connection, so all together are also cut off when they have made as many faults as all of them at once may."""

    def __init__(self) -> None:
        self.refused: dict[PeerId, str] = {}
        """Peers that broke the rules, and how; of the latest 1024."""
        self._faults: dict[PeerId, int] = {}
        self._guests_faults = 0

    def cut_off(self, peer: PeerId) -> bool:
        too_many = self._guests_faults >= GUESTS_MAX * _FAULTS_MAX and is_guest(peer)
        return too_many or self._faults.get(peer, 0) >= _FAULTS_MAX

    def spotless(self, peer: PeerId) -> bool:
        """Whether nothing was wrong with `peer` of late."""
        return peer not in self._faults

    def refuse(self, peer: PeerId, why: str) -> None:
        """Remember what `peer` did that was not taken."""
        self.refused.pop(peer, None)
        self.refused[peer] = why
        if len(self.refused) > _REFUSED_MAX:
            del self.refused[next(iter(self.refused))]

    def fault(self, peer: PeerId) -> bool:
        """Count a fault of `peer`; returns whether it is cut off from now on."""
        before = self.cut_off(peer)
        self._faults[peer] = min(self._faults.get(peer, 0) + 1, _FAULTS_MAX)
        self._guests_faults = min(self._guests_faults + is_guest(peer), GUESTS_MAX * _FAULTS_MAX)
        return self.cut_off(peer) and not before

    def forgive(self) -> None:
        """An interval has passed."""
        self._faults = {peer: count - 1 for peer, count in self._faults.items() if count > 1}
        self._guests_faults = max(0, self._guests_faults - GUESTS_MAX)
