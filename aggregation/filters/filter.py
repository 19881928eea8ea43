"""The filters of pushes: which elements of a change are sent now, and what is kept for later.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014, sections 3.4 and 5.1.
Error feedback: see `codecs.error_feedback`.

    corrected_t = change_t + residual_t           passed_t = f_k( ... f_1(corrected_t))
    residual_t+1 = corrected_t - passed_t         but 0 where a filter forgets an element

Filters are applied in the order in which the user names them, each to what the one before has let pass. Without a
filter that forgets, what was sent and the residual add up to all changes, exactly where filters pass elements as they
are.

Cost: no messages, and a vector of memory on each worker. An element that does not pass is 0 in the push.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from ..codecs.codec import seed_of


@dataclass(frozen=True, slots=True)
class Push:
    """The push that filters look at. `weights` [n]: the values that the worker had pulled; `rate`: the learning rate by
    which a gradient became the change, 0: unknown; `seed`: for random choices, another one for each worker and push."""

    weights: Tensor
    rate: float
    seed: int


class Filter(Protocol):
    """A filter, which holds no state."""

    forgets: ClassVar[bool]
    """Whether an element that does not pass is dropped; False: it is added to the next push."""

    def passed(self, change: Tensor, push: Push) -> Tensor:
        """What passes of a `change` [n], a new tensor [n]: each element as it is, or as a codec makes it, or 0."""
        ...


class Filtered(NamedTuple):
    """The outcome of filters: the `sent` elements [n], the `residual` [n], and the number of elements that were `held`
    back or forgotten."""

    sent: Tensor
    residual: Tensor
    held: int


@dataclass(frozen=True, slots=True)
class Filters:
    """Some filters, in the order in which they are applied."""

    chain: tuple[Filter, ...]

    @property
    def forget(self) -> bool:
        """Whether one of them drops elements for good."""
        return any(one.forgets for one in self.chain)

    def apply(self, change: Tensor, residual: Tensor | None, push: Push) -> Filtered:
        """Filter a `change` [n]. `residual` [n]: what the last push of this worker left; None: nothing. The weights and
        the residual are not changed."""
        corrected = change if residual is None else change + residual
        sent, forgotten = corrected, None
        for number, one in enumerate(self.chain):
            before = sent
            sent = one.passed(before, _at(push, number))
            if one.forgets:
                forgotten = before - sent if forgotten is None else forgotten + (before - sent)
        left = corrected - sent
        return Filtered(sent, left if forgotten is None else left - forgotten, held_in(corrected, sent))


def held_in(corrected: Tensor, sent: Tensor) -> int:
    """The number of elements of `corrected` [n] of which nothing was sent."""
    return int(((corrected != 0) & (sent == 0)).sum())


def where(keeps: Tensor, change: Tensor) -> Tensor:
    """The elements of `change` [n] that are marked in `keeps` [n], and 0 elsewhere."""
    return torch.where(keeps, change, torch.zeros((), dtype=change.dtype))


def _at(push: Push, number: int) -> Push:
    """The push as the filter with this number sees it: each draws from numbers of its own."""
    return Push(push.weights, push.rate, seed_of(push.seed, number))
