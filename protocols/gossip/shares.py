"""The shares of a vector that a peer splits between itself and its neighbours: each is taken once, or comes back.

A sum over all peers is conserved only if no share is lost and none counts twice. A transfer may break off at any
moment, so the sender cannot know at once whether a share was taken. The share then counts for neither side, until the
taker tells, in its next question at the latest: a question names the last one by which a share was taken. A share that
was not taken comes back, and so does that of a neighbour that has ended, whose own state is lost anyway.
Source of the requirement: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019, arXiv
1811.10792, whose messages must arrive.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from ..testpoints import sometimes, witness
from ..transport import PeerId


@dataclass(frozen=True, slots=True)
class CameBack:
    """Event for a simulation's checkers: the share of `round` that was for `taker` counts for the sender again."""

    round: int
    taker: PeerId


@dataclass(frozen=True, slots=True)
class BeganAnew:
    """Event for a simulation's checkers: a peer has given up its sum, with all shares that it had taken."""


def split(vector: Tensor, takers: int) -> tuple[Tensor, Tensor]:
    """The share [n] of each of so many takers, and the rest of `vector` [n]. They sum up to it, integers exactly."""
    parts = takers + 1
    share = vector / parts if vector.is_floating_point() else vector.div(parts, rounding_mode="floor")
    return share, vector - takers * share


class Shares:
    """The shares of one peer."""

    def __init__(self) -> None:
        self._open: dict[PeerId, tuple[int, int, Tensor]] = {}
        """Shares of which it is not known whether their takers took them: the question, the round, and the share."""
        self._back: list[Tensor] = []

    def given(self, taker: PeerId, ask: int, round: int, share: Tensor) -> None:
        """`share` [n] answers the question `ask` of `taker`."""
        self._open[taker] = (ask, round, share)

    def told(self, taker: PeerId, took: int) -> None:
        """`taker` has taken the shares that it asked for up to the question `took`, and no later one, or takes none any
        more."""
        if (given := self._open.get(taker)) is not None:
            del self._open[taker]
            ask, round, share = given
            if took < ask:
                self.come_back(round, share, [taker])

    def took(self, taker: PeerId, ask: int) -> None:
        """`taker` has taken the share by the question `ask`."""
        if taker in self._open and self._open[taker][0] <= ask:
            del self._open[taker]

    def come_back(self, round: int, share: Tensor, takers: Collection[PeerId]) -> None:
        """The shares of `round` that were for these peers count for this peer again."""
        if takers:
            sometimes("a share came back")
        for taker in takers:
            witness(CameBack(round, taker))
            self._back.append(share)

    def reset(self) -> None:
        """This peer's state begins anew: nothing that it has split before is its own any more."""
        witness(BeganAnew())
        self._open.clear()
        self._back.clear()

    def back(self) -> list[Tensor]:
        """The shares that have come back since the last call."""
        back, self._back = self._back, []
        return back
