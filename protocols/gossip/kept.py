"""The vectors that a peer has published, and the peers that are still to take them."""

from __future__ import annotations

from collections.abc import Iterable

from ..testpoints import witness
from ..transport import PeerId
from .messages import NEWEST, Published
from .shares import Shares

_ROUNDS = 4
"""For how many rounds a vector is kept for slower neighbours."""


class Kept:
    """The vectors of one peer. `shares`: if there are some, each vector after the first is a share that each of its
    takers may take once, and that comes back if it is dropped before."""

    def __init__(self, first: Published, shares: Shares | None = None) -> None:
        self._shares = shares
        self._all: list[tuple[Published, set[PeerId]]] = []
        """The newest last."""
        self._shown: Published | None = None
        self.publish(first)

    @property
    def newest(self) -> Published:
        """The vector that was published last."""
        return self._all[-1][0]

    def publish(self, one: Published, takers: Iterable[PeerId] = ()) -> None:
        """Keep `one` for its `takers`, and for all that ask for the newest."""
        witness(one)
        self._shown = None
        self._all.append((one, set(takers)))
        self._drop_old()

    def show(self, one: Published) -> None:
        """Until the next one is published, `one` is given to peers that ask for the newest."""
        witness(one)
        self._shown = one

    def covers(self, round: int) -> bool:
        """Whether there is a vector to give for `round`, or will never be another one."""
        return round <= self.newest.round or self.newest.last

    def for_round(self, round: int, taker: PeerId) -> Published | None:
        """The vector to give to a peer that asks for `round`; None: it is given none."""
        if round == NEWEST:
            return self._shown or self.newest
        found = next((each for each in self._all if each[0].round == round), None)
        if self._shares is None:
            return self.newest if found is None else found[0]
        return None if found is None or taker not in found[1] else found[0]

    def taken(self, one: Published, taker: PeerId) -> None:
        """`taker` is given `one`."""
        for each, takers in self._all:
            if each.round == one.round:
                takers.discard(taker)
        self._drop_old()

    def taken_up_to(self, taker: PeerId, round: int) -> None:
        """`taker` has all that it needs of the rounds up to this one."""
        for one, takers in self._all:
            if one.round <= round:
                takers.discard(taker)
        self._drop_old()

    def holds(self, one: Published) -> bool:
        """Whether this very object may still be given to a peer."""
        return one is self._shown or any(one is each for each, _ in self._all)

    def forget(self, taker: PeerId) -> None:
        """`taker` is given no vector any more that was published so far."""
        for one, takers in self._all:
            self._come_back(one, takers & {taker})
            takers.discard(taker)
        self._drop_old()

    def withdraw(self) -> None:
        """Nobody is to take any vector that was published so far."""
        for _, takers in self._all:
            takers.clear()

    def _drop_old(self) -> None:
        """Drop older vectors that nobody is to take any more."""
        *older, newest = self._all
        oldest = newest[0].round - _ROUNDS
        for one, takers in older:
            if one.round <= oldest:
                self._come_back(one, takers)
        self._all = [*(each for each in older if each[1] and each[0].round > oldest), newest]

    def _come_back(self, one: Published, takers: set[PeerId]) -> None:
        if self._shares is not None:
            self._shares.come_back(one.round, one.vector, takers)
