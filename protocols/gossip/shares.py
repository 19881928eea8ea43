"""The shares of a vector that a peer splits between itself and its neighbours. Each share is taken once by its
neighbour, or comes back, which means that the peer adds it to its own vector again.

A sum over all peers is conserved only if no share is lost and none counts twice. A transfer may break off at any
moment, so the sender cannot know at once whether a share was taken. The share then counts for neither side until the
taker tells, in its next question at the latest: each question names the last question by which its sender has taken a
share. A share that was not taken comes back. So does, in doubt, the share of a neighbour that has ended, whose own
state is lost anyway. A neighbour that is only out of reach may have taken its share and train on, so its share stays
open until it tells.
Source of the requirement: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019, arXiv
1811.10792, whose messages must arrive.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from ..testpoints import sometimes, witness
from ..transport import PeerId

_DOUBTED_ROUNDS = 4
"""Of the shares whose takers are no neighbours any more, those of this many rounds are kept: the takers of one round
share one vector."""


@dataclass(frozen=True, slots=True)
class CameBack:
    """Event for a simulation's checkers: the share of `round` that was meant for `taker` has come back to its
    sender."""

    round: int
    taker: PeerId


@dataclass(frozen=True, slots=True)
class BeganAnew:
    """Event for a simulation's checkers: a peer has replaced its state, and with it given up all shares that it had
    taken."""


def split(vector: Tensor, takers: int) -> tuple[Tensor, Tensor]:
    """Split `vector` [n] into equal shares: returns the share [n] that each of so many `takers` gets, and the rest [n]
    for the peer itself. The rest and all shares add up to `vector`; exactly, if it holds integers."""
    parts = takers + 1
    share = vector / parts if vector.is_floating_point() else vector.div(parts, rounding_mode="floor")
    return share, vector - takers * share


class Shares:
    """One peer's account of the shares that it has given, and that may come back."""

    def __init__(self) -> None:
        self._open: dict[PeerId, tuple[int, int, Tensor]] = {}
        """Shares of which it is not known whether their takers took them: the question, the round, and the share."""
        self._doubted: set[PeerId] = set()
        """The takers of open shares that are no neighbours any more since."""
        self._back: list[Tensor] = []

    def given(self, taker: PeerId, ask: int, round: int, share: Tensor) -> None:
        """Note that `share` [n] of `round` was given to `taker` in answer to its question numbered `ask`. A share that
        was open for `taker` before has to be settled by `told` first: it would be forgotten here."""
        self._open[taker] = (ask, round, share)
        self._doubted.discard(taker)

    def told(self, taker: PeerId, took: int) -> None:
        """Note that the last question by which `taker` has taken a share is `took`, as it has told. If the share that
        is open for it was given for a later question, that share comes back; else it counts as taken. 0: `taker` has
        taken none, or has ended."""
        if (given := self._open.get(taker)) is not None:
            self._close(taker)
            ask, round, share = given
            if took < ask:
                self.come_back(round, share, [taker])

    def took(self, taker: PeerId, ask: int) -> None:
        """Note that `taker` has confirmed that it has the share that it asked for by the question `ask`: that share
        cannot come back."""
        if taker in self._open and self._open[taker][0] <= ask:
            self._close(taker)

    def cut_off(self, taker: PeerId) -> None:
        """Note that `taker` is no neighbour any more, as it is out of reach, so that it may never tell whether it took
        the share that is open for it. Such shares of 4 rounds are kept open; one of an earlier round counts as
        taken."""
        if taker in self._open:
            self._doubted.add(taker)
            rounds = {peer: self._open[peer][1] for peer in self._doubted}
            kept = sorted({*rounds.values()})[-_DOUBTED_ROUNDS:]
            for peer in [peer for peer, round in rounds.items() if round not in kept]:
                self._close(peer)

    def come_back(self, round: int, share: Tensor, takers: Collection[PeerId]) -> None:
        """Note that the share [n] of `round` comes back once for each of these `takers`, which will not take it."""
        if takers:
            sometimes("a share came back")
        for taker in takers:
            witness(CameBack(round, taker))
            self._back.append(share)

    def reset(self) -> None:
        """Drop the open shares and those that came back: this peer has replaced its state, and they are no part of the
        new one."""
        witness(BeganAnew())
        self._open.clear()
        self._doubted.clear()
        self._back.clear()

    def back(self) -> list[Tensor]:
        """The shares [n] that have come back since the last call, each once; the caller adds them to this peer's
        vector. Empty if none has."""
        back, self._back = self._back, []
        return back

    def _close(self, taker: PeerId) -> None:
        del self._open[taker]
        self._doubted.discard(taker)
