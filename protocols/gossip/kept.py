"""The vectors that a peer has published and still keeps, each with the peers that have yet to take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..testpoints import witness
from ..transport import PeerId
from .messages import NEWEST, Published
from .shares import Shares

_ROUNDS = 4
"""A vector is kept for slower neighbours for this many rounds at most."""


class Kept:
    """The published vectors of one peer, `first` among them. `shares`: if given, each vector after the first is a share
    that each of its takers may take once; a share that is dropped untaken comes back to this peer."""

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
        """Make `one` the newest vector, and keep it for its `takers`, until each has been given it or it is 4 rounds
        older than the newest. It ends what `show` has set."""
        witness(one)
        self._shown = None
        self._all.append((one, set(takers)))
        self._drop_old()

    def show(self, one: Published) -> None:
        """Make `one` the vector that peers get that ask for the newest, until the next one is published. `newest` stays
        as it is, and nobody gets `one` for a round."""
        witness(one)
        self._shown = one

    def covers(self, round: int) -> bool:
        """Whether a question for `round` can be answered now: that round or a later one is published, or this peer
        publishes nothing more."""
        return round <= self.newest.round or self.newest.last

    def for_round(self, round: int, taker: PeerId) -> Published | None:
        """The vector to give to the peer `taker` that asks for `round`: that of the round, or the newest one if that is
        not kept. `NEWEST`: the one that was shown or published last. None: vectors are shares, and there is none of
        that round for this peer."""
        if round == NEWEST:
            return self._shown or self.newest
        found = next((each for each in self._all if each[0].round == round), None)
        if self._shares is None:
            return self.newest if found is None else found[0]
        return None if found is None or taker not in found[1] else found[0]

    def taken(self, one: Published, taker: PeerId) -> None:
        """Note that `taker` has been given `one`: the vector of that round is no longer kept for it."""
        for each, takers in self._all:
            if each.round == one.round:
                takers.discard(taker)
        self._drop_old()

    def taken_up_to(self, taker: PeerId, round: int) -> None:
        """Note that `taker` has read the vectors that it needs up to `round`; they are no longer kept for it."""
        found = [takers for one, takers in self._all if one.round <= round and taker in takers]
        for takers in found:
            takers.discard(taker)
        if found:
            self._drop_old()

    def holds(self, one: Published) -> bool:
        """Whether `one`, this very object, may still be given to a peer, so that its memory must not be overwritten."""
        return one is self._shown or any(one is each for each, _ in self._all)

    def forget(self, taker: PeerId) -> None:
        """Keep none of the vectors published so far for `taker`. Its shares come back."""
        for one, takers in self._all:
            self._come_back(one, takers & {taker})
            takers.discard(taker)
        self._drop_old()

    def lighten(self, is_needed: Callable[[Published], bool]) -> None:
        """Of the older vectors that were encoded, keep the differences alone: their `vector` is empty [0] from now on.
        Those for which `is_needed` returns True stay whole."""
        *older, newest = self._all
        self._all = [
            *(
                (_light(one) if one.difference is not None and not is_needed(one) else one, takers)
                for one, takers in older
            ),
            newest,
        ]

    def withdraw(self) -> None:
        """Keep none of the vectors published so far for any peer. Shares do not come back."""
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


def _light(one: Published) -> Published:
    return one if one.vector.numel() == 0 else replace(one, vector=one.vector.new_empty(0))
