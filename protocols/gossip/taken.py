"""The vectors that a peer has taken from its neighbours in a round, and the neighbours from which it may go on when it
is behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..members.port import Members
from ..transport import PeerId
from .graph import Weights
from .lent import Shown
from .messages import Published


@dataclass(frozen=True, slots=True)
class Taken:
    """What came from neighbours in a round, and the weights of the mix: `weights` of the neighbours' vectors, `own` of
    this peer's own. `vectors`: by neighbour, its vector or an estimate of it, a share (`splits`: all are shares, and
    all weights are 1), or its numbers alone, with an empty vector. `waited_s`: seconds until the last neighbour had
    begun to answer; if one gave nothing, until nothing more could come. `waited_for`: the neighbour that answered last;
    None: none did."""

    vectors: Mapping[PeerId, Published | Shown]
    weights: Weights
    own: float
    waited_s: float
    waited_for: PeerId | None
    splits: bool = False

    @property
    def reached(self) -> int:
        """The latest round r such that more than half of these vectors are of round r or of a later one. Vectors of
        round 0, from before a first mix, are left out. 0: there are no others."""
        rounds = sorted((one.round for one in self.vectors.values() if one.round > 0), reverse=True)
        return rounds[len(rounds) // 2] if rounds else 0


NOTHING = Taken({}, {}, 1.0, 0.0, None)


def donors(taken: Taken, members: Members) -> list[PeerId]:
    """The neighbours from one of which a peer that is behind goes on, the best first: those whose vector is of round
    `taken.reached` or later. First come those that can be dialled, as they have the better links; of these, and of the
    others, first those whose vector is of an earlier round, then those of lower rank."""
    known = {member.id: member for member in members.neighbours.now}
    ahead = [peer for peer, one in taken.vectors.items() if peer in known and one.round >= taken.reached]
    return sorted(ahead, key=lambda peer: (not known[peer].dialable, taken.vectors[peer].round, known[peer].rank))
