"""False suspicions: a peer whose suspicions of others are refuted over and over is not believed any more.

Only a suspicion that the accuser itself has told this peer counts against it: a peer that passes a suspicion on may
have invented its author. A suspicion that is refuted long after it was told does not count either: a partition may have
healed.

On failure: an accuser that spreads its suspicions over very many peers is found out by each of them later.
"""

from __future__ import annotations

from collections import Counter

from ..transport import PeerId

_MOST = 16
"""The number of refuted suspicions after which a peer is not believed any more. It is believed again when forgiveness
has brought the number down to half."""
_FORGIVE = 8
"""Each peer is forgiven one refuted suspicion once in this number of periods."""
_OPEN_MAX, _TALLIED_MAX = 512, 256


class FalseSuspicions:
    """The suspicions that one peer has heard from the accusers themselves. `prompt`: the number of periods within which
    a refutation counts against the accuser."""

    def __init__(self, prompt: int) -> None:
        self._prompt = prompt
        self._open: dict[tuple[PeerId, PeerId], int] = {}
        """Accused and accuser -> the period in which it was heard."""
        self._tally = Counter[PeerId]()
        self._distrusted: set[PeerId] = set()

    def distrusts(self, peer: PeerId) -> bool:
        """Whether statements of `peer` on others are not believed any more."""
        return peer in self._distrusted

    def heard(self, accuser: PeerId, accused: PeerId, period: int) -> None:
        """Note that `accuser` has told in this `period` that `accused` does not answer."""
        if len(self._open) < _OPEN_MAX or (accused, accuser) in self._open:
            self._open[accused, accuser] = period

    def refuted(self, accused: PeerId, period: int) -> list[PeerId]:
        """Note that `accused` has refuted all suspicions so far. Returns the accusers that are not believed any more
        from now on: each has come to 16 suspicions that were refuted in time."""
        lost = []
        for key in [key for key in self._open if key[0] == accused]:
            if period - self._open.pop(key) > self._prompt:
                continue
            accuser = key[1]
            if len(self._tally) < _TALLIED_MAX or accuser in self._tally:
                self._tally[accuser] = min(self._tally[accuser] + 1, 2 * _MOST)
            if self._tally[accuser] >= _MOST and accuser not in self._distrusted:
                self._distrusted.add(accuser)
                lost.append(accuser)
        return lost

    def end_period(self, period: int) -> None:
        """Once in 8 periods: forget old suspicions, and forgive each accuser one refuted suspicion. One that comes down
        to 8 of them is believed again. `period`: the number of the period that has ended."""
        if period % _FORGIVE:
            return
        self._open = {key: since for key, since in self._open.items() if period - since <= self._prompt}
        for peer in list(self._tally):
            self._tally[peer] -= 1
            if self._tally[peer] <= _MOST // 2:
                self._distrusted.discard(peer)
            if self._tally[peer] <= 0:
                del self._tally[peer]
