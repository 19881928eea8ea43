"""The filters of pulls: which elements of its values a server sends a worker that has pulled before, and in what form.

Source: Li et al., OSDI 2014, sections 3.4 and 5.1; Hsieh et al., "Gaia", NSDI 2017, section 3.2, for the threshold.

    shown_t+1 = value_t+1 where |value_t+1 - shown_t| > threshold |shown_t|, else shown_t

All workers pull the values that are shown, so a server holds one further vector for all of them, and none for each. An
element travels to a worker when it has been shown anew since the worker's last pull. The exact values stay on the
server: an element that is not shown yet, or that a codec rounds, is late or inexact for a reader, but nothing is lost,
hence the next pull needs no error feedback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..codecs.codec import HopCodec
from ..codecs.registry import CODECS, parse_codec
from ..options import OptionError, made_of, number, spelled
from .registry import FILTERS

ROUNDS = ("fp16", "bf16", "int8")
"""The codecs that round each value to a nearby one."""


@dataclass(frozen=True, slots=True)
class PullFilters:
    """The filters of pulls. `threshold`: a value is shown anew once it differs by more than this share from the shown
    one, 0 to 1e6, else ValueError; 0: at each change. `codec`: encodes a range of which much travels; None: values
    travel as they are."""

    threshold: float = 0.0
    codec: HopCodec | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1e6:
            raise ValueError(f"the threshold is a share from 0, got {self.threshold:g}")


def shown(values: Tensor, before: Tensor, threshold: float) -> Tensor:
    """The values [n] that readers are shown next, where they were shown those `before` [n] and the exact ones are
    `values` [n]: the exact one where it differs from the former by more than `threshold` times the former's magnitude,
    or where either is not finite; elsewhere the former."""
    most = threshold * before.abs()
    return torch.where(((values - before).abs() <= most) & most.isfinite(), before, values)


def parse_pull_filters(text: str) -> PullFilters:
    """The filters of pulls that a user asks for: ``changed`` or ``significant:0.01``, then perhaps, after a comma, a
    codec of `ROUNDS`; or such a codec alone, with the threshold 0. Raises ValueError, in one line, on any others."""
    names = [spelled(one.strip()) for one in text.split(",")]
    of = [name.partition(":")[0] for name in names]
    codec: HopCodec | None = None
    if of[-1] in CODECS and of[-1] not in _PULLS:
        if of[-1] not in ROUNDS:
            why = "it leaves too much out for values that are trained from"
            raise OptionError(f"the codec {of[-1]} encodes no pulls, {why}: one of {', '.join(ROUNDS)} does")
        made = parse_codec(names.pop())
        assert made.family == "hop"
        codec = made
    for name in of[: len(names)]:
        if name in CODECS and name not in FILTERS:
            raise OptionError(f"the codec {name} comes last: what it makes cannot be filtered")
        if name in FILTERS and name not in _PULLS:
            raise OptionError(f"{name} is a filter of pushes: pulls have {', '.join(_PULLS)}")
    thresholds = [made_of(name, _PULLS, "filter of pulls") for name in names]
    if len(thresholds) > 1:
        raise OptionError(f"one of {', '.join(_PULLS)} is enough for pulls, got {len(names)}")
    return PullFilters(thresholds[0] if thresholds else 0.0, codec)


def _significant(threshold: str = "0.01") -> float:
    if not (share := number(threshold)) > 0:
        raise ValueError(f"the threshold is a share above 0, got {share:g}")
    return share


_PULLS: Mapping[str, tuple[Callable[..., float], int]] = {
    "changed": (lambda: 0.0, 0),
    "significant": (_significant, 1),
}
"""Name -> a function that makes the threshold from the filter's options, which are texts, and the most options."""
