"""A few elements, chosen by a seed that is the same on every peer: no indices are sent, and the values simply add up.

Source: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (NeurIPS 2018, arXiv 1809.07599), Algorithm 1 with
rand_k of Definition 2.1. Here the vector is cut into k stretches, equal up to one element, and one element is drawn of
each: every element has the same chance as in the paper, up to that one, without a shuffle of all of them.

    paper   here
    d       n, elements
    k       ceil(fraction n)
    omega   the elements chosen
    m_t     the residual of `ErrorFeedback`

Cost: an allreduce of k elements.

Effect on the mean: the elements chosen are exact, the others 0, ``E|Q(v) - v|^2 = (1 - k/n) |v|^2``. So it needs
error feedback; without it, multiply the result by n/k and it is right in expectation, at n/k times the variance.
"""

import math
from dataclasses import dataclass
from hashlib import shake_128
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..vector import Layout
from .codec import SketchState
from .sketch import Stages, check_round
from .top_k import check_fraction


@dataclass(frozen=True, slots=True)
class RandomK:
    """A sketch codec with one stage, in which the chosen elements are averaged. The choice is the same for all rows of
    [..., n]. It keeps no state between rounds. Raises ValueError on a ``fraction`` other than 1e-6 to 1."""

    family: ClassVar[Literal["sketch"]] = "sketch"
    name: ClassVar[str] = "random_k"

    fraction: float = 0.01
    """The share of elements that is sent, from 1e-6 to 1; at least one element is sent."""

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def elements(self, layout: Layout) -> tuple[int, ...]:
        return (math.ceil(self.fraction * layout.size),)

    def start(self, layout: Layout, seed: int) -> SketchState:
        return ()

    def begin(self, values: Tensor, layout: Layout, seed: int, state: SketchState) -> "RandomKRound":
        check_round(values, layout, state, tensors=0)
        (kept,) = self.elements(layout)
        return RandomKRound(values.detach(), choose(layout.size, kept, seed).to(values.device))


class RandomKRound(Stages):
    """One peer's side of one round (`codec.Sketch`). ``values`` [..., n]: what it averages; ``places`` [k]: the indices
    of the elements that are averaged in this round, the same on every peer."""

    stages = 1

    def __init__(self, values: Tensor, places: Tensor) -> None:
        super().__init__()
        self._size, self._places, self._values = values.shape[-1], places, values.index_select(-1, places)

    def _projection(self, stage: int) -> Tensor:
        return self._values

    def result(self) -> Tensor:
        return self._spread(self._mean(0))

    def own(self) -> Tensor:
        return self._spread(self._values)

    def state(self) -> SketchState:
        return ()

    def _spread(self, values: Tensor) -> Tensor:
        return values.new_zeros((*values.shape[:-1], self._size)).index_copy_(-1, self._places, values)


def choose(size: int, kept: int, seed: int) -> Tensor:
    """Cut ``size`` elements into ``kept`` stretches, and choose one index of each. Returns them in ascending order
    (int64 [kept], CPU). They depend on the seed alone, so they are equal for all versions of torch and all devices."""
    drawn = shake_128(f"random_k {seed}".encode()).digest(4 * kept)
    words = torch.frombuffer(bytearray(drawn), dtype=torch.int32).to(torch.int64) & 0xFFFFFFFF
    length, longer = divmod(size, kept)  # the first `longer` stretches have one element more
    stretches = torch.arange(kept)
    starts = stretches * length + stretches.clamp(max=longer)
    return starts + (words * (length + (stretches < longer)) >> 32)
