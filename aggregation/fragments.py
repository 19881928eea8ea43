"""Fragments: a model is averaged in parts, one part a round, one after another.

Source: Douillard et al., "Streaming DiLoCo with overlapping communication" (arXiv 2501.18512), Algorithm 2.

    paper            here
    P fragments      `Fragments.parts`, of equal length, along the model
    H                ``fragments * period`` local steps between two averages of a fragment
    t_p, H/P apart   round r is about fragment (r - 1) mod P, and rounds are ``period`` local steps apart
    theta_p(t - H)   the fragment in ``anchor``, equal on all peers since its last average
    tau, alpha       0: the next local steps begin after the fragment's average; with ``--overlap`` tau is a ``period``
                     and alpha is ``--overlap-share``

The agreed state is nevertheless a whole model: each fragment as last averaged. A peer continues to train with its own
values of all fragments except the one just averaged. A peer that joins late or returns takes all fragments from the
others.

Cost: a round sends 1/P of the bytes, and there are P times as many rounds: the same bytes on average, 1/P at a time.
"""

from dataclasses import dataclass

from torch import Tensor

from .outer import OuterState, OuterStep
from .vector import Part, parts


@dataclass(frozen=True, slots=True)
class Fragments:
    """The fragments into which a vector is cut. `parts`: the fragments, in the order in which they are averaged."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, size: int, count: int) -> "Fragments":
        """Cut a vector of ``size`` elements into ``count`` fragments, equal up to one element, or into ``size`` ones of
        one element where ``count`` is larger. Raises ValueError unless both are at least 1."""
        return cls(parts(size, min(size, count)))

    def of_size(self, size: int) -> "Fragments":
        """The same number of fragments for a vector of ``size`` elements: needed when the model has grown during the
        run. Returns this object where the size is unchanged."""
        return self if self.parts[-1].stop == size else Fragments.of(size, len(self.parts))

    def index(self, round: int) -> int:
        """The index in `parts` of the fragment that is averaged in that round; rounds count from 1."""
        return (round - 1) % len(self.parts)

    def at(self, round: int) -> Part:
        """The fragment that is averaged in that round; rounds count from 1."""
        return self.parts[self.index(round)]

    def mixed(self, before: Tensor, after: Tensor, round: int) -> Tensor:
        """A copy of ``before`` in which the fragment of that round is taken from ``after``, both [..., n]. With one
        fragment it is ``after`` itself, not a copy."""
        if len(self.parts) == 1:
            return after
        start, stop = self.at(round)
        mixed = before.clone()
        mixed[..., start:stop] = after[..., start:stop]
        return mixed

    def step(
        self, outer: OuterStep, round: int, anchor: Tensor, mean: Tensor, state: OuterState
    ) -> tuple[Tensor, OuterState]:
        """Take the outer step from the ``anchor`` towards the ``mean`` for that round's fragment only. Returns the new
        model and the step's new state; outside the fragment they are ``anchor`` and ``state`` unchanged. All vectors
        are [..., n]."""
        vector, after = outer.step(anchor, mean, state)
        kept = tuple(self.mixed(old, new, round) for old, new in zip(state, after, strict=True))
        return self.mixed(anchor, vector, round), kept
