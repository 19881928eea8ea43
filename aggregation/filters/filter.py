"""The filters of pushes: which elements are sent now, what is kept for later, and as what numbers are sent.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014, sections 3.4 and 5.1.
Error feedback: see `codecs.error_feedback`.

    corrected_t = push_t + residual_t             passed_t = f_k( ... f_1(corrected_t))
    residual_t+1 = corrected_t - passed_t         but 0 where a filter forgets an element

Filters are applied in the order in which the user names them, each to what the one before has let pass; a codec comes
last. Without a filter that forgets, what was sent and the residual add up to all pushes, exactly where filters pass
elements as they are.

Of a table's rows [k, width] each passes or waits whole, as the paper's values of one key do.

Cost: no messages, and a vector of memory on each worker. An element that does not pass is 0 in the push.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from ..codecs.codec import GatherCodec, HopCodec, seed_of
from ..vector import Part


@dataclass(frozen=True, slots=True)
class Push:
    """The push to which filters are applied. `weights` [n], or [k, width] of rows: the values that the worker had
    pulled before its local steps; `rate`: the factor by which a pushed element is multiplied to give the change of its
    value; `seed`: for random choices, another one for each worker and push; `parts`: the ranges that a codec encodes
    separately, in order, which together are all of the vector; without a codec they are not used."""

    weights: Tensor
    rate: float
    seed: int
    parts: tuple[Part, ...] = ()


class Filter(Protocol):
    """The port of filters: a filter chooses the elements of a push that are sent now. It holds no state, and its random
    choices are those of `Push.seed`."""

    forgets: ClassVar[bool]
    """Whether an element that does not pass is dropped; False: it is added to the next push."""

    def passed(self, values: Tensor, push: Push) -> Tensor:
        """Filter the `values` [n] of `push`. Returns a new tensor [n]: an element that passes is unchanged or rounded,
        any other is 0."""
        ...

    def passed_rows(self, rows: Tensor, push: Push) -> Tensor:
        """Filter the `rows` [k, width] of `push`. Returns a new tensor [k, width]: all elements of a row that passes
        are unchanged or rounded, those of any other are 0."""
        ...


PartCodec = HopCodec | GatherCodec
"""A codec that can encode each part of a push by itself."""


class Filtered(NamedTuple):
    """The result of `Filters.apply`. `sent` [n]: the elements that the server gets; `residual` [n]: those to give to
    the next call; `held`: the number of elements, those of 0 aside, that were kept back or forgotten. `coded`: index of
    a part -> the bytes that the codec made of it; the receiver decodes them to the elements in `sent`. Empty: there is
    no codec."""

    sent: Tensor
    residual: Tensor
    held: int
    coded: Mapping[int, Tensor]


@dataclass(frozen=True, slots=True)
class Filters:
    """Some filters, in the order in which they are applied, and the codec that encodes the result; None: there is no
    codec."""

    chain: tuple[Filter, ...]
    codec: PartCodec | None = None

    @property
    def forget(self) -> bool:
        """Whether one of the filters drops elements for good."""
        return any(one.forgets for one in self.chain)

    def apply(self, values: Tensor, residual: Tensor | None, push: Push) -> Filtered:
        """Apply all filters, then the codec, to the `values` [n] of a push. `residual` [n]: the `Filtered.residual` of
        this worker's last push, which is added to the values first; None: there is none. No tensor that is given is
        changed. Raises ValueError if their sum is not finite and there is a codec or the filter `Largest`."""
        corrected = values if residual is None else values + residual
        passed, forgotten = self.passed(corrected, push)
        sent, coded = self.encoded(passed, push)
        left = corrected - sent
        held = int(((corrected != 0) & (passed == 0)).sum())
        return Filtered(sent, left if forgotten is None else left - forgotten, held, coded)

    def passed(self, corrected: Tensor, push: Push) -> tuple[Tensor, Tensor | None]:
        """Apply all filters, but no codec, to `corrected`: [n], or rows [k, width]. Returns two tensors of its shape:
        what passes, and what is forgotten (None: no filter forgets). Raises ValueError if a number is not finite and
        one of the filters is `Largest`."""
        passed, forgotten = corrected, None
        for number, one in enumerate(self.chain):
            before, drawn = passed, replace(push, seed=seed_of(push.seed, number))
            passed = one.passed(before, drawn) if before.dim() == 1 else one.passed_rows(before, drawn)
            if one.forgets:
                forgotten = before - passed if forgotten is None else forgotten + (before - passed)
        return passed, forgotten

    def encoded(self, passed: Tensor, push: Push) -> tuple[Tensor, Mapping[int, Tensor]]:
        """Encode each of `push.parts` of what the filters have let `passed`, [n], or rows [k, width], of which a part
        is some rows. Returns the decoded values, of its shape, and the bytes (uint8) by the part's index; none for an
        empty part. Without a codec that is `passed` itself, and no bytes. Raises ValueError if there is a codec and a
        number to encode is not finite."""
        if self.codec is None:
            return passed, {}
        coded, sent = dict[int, Tensor](), torch.empty_like(passed)
        for number, (start, stop) in enumerate(push.parts):
            part = passed[start:stop]
            if not part.numel():
                continue
            coded[number] = self.codec.encode(part.flatten(), seed_of(push.seed, "codec", number))
            sent[start:stop] = self.codec.decode(coded[number], part.numel(), passed.dtype).view_as(part)
        return sent, coded


def where(keeps: Tensor, values: Tensor) -> Tensor:
    """The `values` [n] where the booleans `keeps` [n] are true, and 0 elsewhere. For rows [k, width], `keeps` [k] marks
    whole rows."""
    marks = keeps if keeps.dim() == values.dim() else keeps[:, None]
    return torch.where(marks, values, torch.zeros((), dtype=values.dtype))
