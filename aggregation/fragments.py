"""Fragments: a model that is averaged in parts, one a round, each in its turn.

Source: Douillard et al., "Streaming DiLoCo with overlapping communication" (arXiv 2501.18512), Algorithm 2.

    paper            here
    P fragments      `Fragments.parts`, of equal length, along the model
    H                ``fragments * period`` local steps: each fragment is averaged that often
    t_p, H/P apart   round r is about fragment (r - 1) mod P, and rounds are ``period`` local steps apart
    theta_p(t - H)   the fragment in ``anchor``, as all peers have had it since it was averaged last
    tau, alpha       0: the next local steps begin when the fragment is there; with ``--overlap`` tau is one ``period``
                     and alpha is ``--overlap-share``

What peers agree on is a whole model all the same: each fragment as it was averaged last. A peer trains on with its own
values of all fragments but the one that has just been averaged; a peer that joins late or returns takes all of them
from the others.

Cost: a round sends 1/P of the bytes, and there are P times as many of them: the same bytes on average, 1/P at a time.
"""

from dataclasses import dataclass

from torch import Tensor

from .outer import OuterState, OuterStep
from .vector import Part, parts


@dataclass(frozen=True, slots=True)
class Fragments:
    """`parts`: of the vector, in turn."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, size: int, count: int) -> "Fragments":
        """``size`` elements in ``count`` fragments, fewer when there are not so many elements."""
        return cls(parts(size, min(size, count)))

    def turn(self, round: int) -> int:
        """Whose turn it is in that round, counted from 1."""
        return (round - 1) % len(self.parts)

    def at(self, round: int) -> Part:
        """The part whose turn it is."""
        return self.parts[self.turn(round)]

    def mixed(self, before: Tensor, after: Tensor, round: int) -> Tensor:
        """``before`` with that round's fragment from ``after``; with one fragment ``after`` itself, not a copy."""
        if len(self.parts) == 1:
            return after
        start, stop = self.at(round)
        mixed = before.clone()
        mixed[start:stop] = after[start:stop]
        return mixed

    def step(
        self, outer: OuterStep, round: int, anchor: Tensor, mean: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState]:
        """An outer step of that round's fragment; the others, and what the step keeps for them, stay as they were."""
        vector, after = outer.step(anchor, mean, state)
        kept = tuple(self.mixed(old, new, round) for old, new in zip(state, after, strict=True))
        return self.mixed(anchor, vector, round), kept
