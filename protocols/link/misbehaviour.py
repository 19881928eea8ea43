"""Misbehaviour: counts the faults (messages that break a rule) of each peer, cuts off a peer with too many, and reports
what was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ..transport import PeerId, is_guest
from .table import GUESTS_MAX
from .telling import tell_all

FAULTS_MAX = 16
"""The faults after which a peer is cut off."""
_GUESTS_FAULTS_MAX = GUESTS_MAX * FAULTS_MAX
_REFUSED_MAX = 1024
_TELL_EVERY_S, _TOLD_AT_ONCE = 30.0, 4


class Refusal(NamedTuple):
    """A report that messages of `peer` were refused: `times` since the last report on it. `why`: the latest reason.
    `cut_off`: whether all its messages are refused now. `address`: where it sends from; empty: unknown."""

    peer: PeerId
    why: str
    times: int
    cut_off: bool
    address: str = ""

    def __str__(self) -> str:
        messages = "a message" if self.times == 1 else f"{self.times:,} messages"
        cut_off = ", and it is cut off" if self.cut_off else ""
        whence = f" at {self.address}" if self.address else ""
        return f"{messages} of the key {self.peer}{whence} not taken{cut_off}: it {self.why}"


class Trust:
    """Counts faults. A peer is cut off, which means that its messages are dropped unread, after 16 faults. Every
    heartbeat interval one of its faults is forgiven: so a peer that stops misbehaving is heard again, and of a flood
    only one frame an interval is read. Guests share a key, and a guest may come again over another connection. So all
    guests together are also cut off, after as many faults as 64 of them (`GUESTS_MAX`) may make.

    A peer is reported at most once in 30 s, and at most four peers in one interval, those with most refusals first.
    """

    def __init__(
        self, whence: Callable[[PeerId], str] = lambda peer: "", hang_up: Callable[[PeerId], None] = lambda peer: None
    ) -> None:
        """`whence` returns the address that a peer sends from. `hang_up` closes the connection of a peer that is cut
        off, which costs less than reading its messages."""
        self._hang_up = hang_up
        self._whence, self._addresses = whence, dict[PeerId, str]()
        self.refused: dict[PeerId, str] = {}
        """The latest 1024 peers that had a message refused, with the latest reason for each."""
        self.on_refused: list[Callable[[Refusal], None]] = []
        self.let_in: set[PeerId] = set()
        """Keys that this peer itself has admitted, and not because a member of the run told their address."""
        self._untold = Counter[PeerId]()
        self._told_at: dict[PeerId, float] = {}
        self._faults: dict[PeerId, int] = {}
        self._guests_faults = 0

    def cut_off(self, peer: PeerId) -> bool:
        """Whether all messages of `peer` are dropped now, after too many faults of its own; for a guest, also after too
        many of all guests."""
        if not self._faults and not self._guests_faults:  # as nearly always
            return False
        if self._guests_faults >= _GUESTS_FAULTS_MAX and is_guest(peer):
            return True
        return self._faults.get(peer, 0) >= FAULTS_MAX

    def ignores(self, peer: PeerId) -> bool:
        """Whether to drop a message that `peer` has just sent, because the peer is cut off. If so, its connection is
        closed, too."""
        if not self.cut_off(peer):
            return False
        if peer in self.refused:
            self._untold[peer] += 1
        self._hang_up(peer)
        return True

    def spotless(self, peer: PeerId) -> bool:
        """Whether `peer` has no fault, or all of its faults are forgiven."""
        return peer not in self._faults

    def refuse(self, peer: PeerId, why: str) -> None:
        """Note that a message of `peer` was refused, and why, for the next report."""
        self.refused.pop(peer, None)
        self.refused[peer] = why
        self._addresses[peer] = self._whence(peer) or self._addresses.get(peer, "")  # now, as it may be hung up on
        if len(self.refused) > _REFUSED_MAX:
            oldest = next(iter(self.refused))
            del self.refused[oldest], self._untold[oldest], self._addresses[oldest]
        self._untold[peer] += 1

    def fault(self, peer: PeerId) -> bool:
        """Count a fault of `peer`. Returns True if this fault cuts it off; False if it is not cut off, or was
        before."""
        before = self.cut_off(peer)
        self._faults[peer] = min(self._faults.get(peer, 0) + 1, FAULTS_MAX)
        self._guests_faults = min(self._guests_faults + is_guest(peer), _GUESTS_FAULTS_MAX)
        return self.cut_off(peer) and not before

    def forgive(self, now: float) -> None:
        """Report the refused messages to `on_refused`, and forgive each peer one fault. The caller calls this once an
        interval. `now`: on the loop's clock."""
        self._tell(now)
        self._faults = {peer: count - 1 for peer, count in self._faults.items() if count > 1}
        self._guests_faults = max(0, self._guests_faults - GUESTS_MAX)

    def _tell(self, now: float) -> None:
        self._told_at = {peer: at for peer, at in self._told_at.items() if now < at + _TELL_EVERY_S}
        due = Counter({peer: times for peer, times in self._untold.items() if peer not in self._told_at})
        for peer, times in due.most_common(_TOLD_AT_ONCE):
            self._told_at[peer] = now
            del self._untold[peer]
            refusal = Refusal(peer, self.refused[peer], times, self.cut_off(peer), self._addresses[peer])
            tell_all(f"telling of what peer {peer:.12} sent", self.on_refused, refusal)
