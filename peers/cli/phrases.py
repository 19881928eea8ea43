"""Phrases in lines, broken between phrases, and those on an evaluated model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ..records.columns import Noun
from ..records.records import ExchangeRecord
from ..records.units import metric_texts, whose_model

SPACES: Final = 3 * " "
"""The gap between two phrases of a line."""


def between_phrases(phrases: Sequence[str], columns: int) -> list[str]:
    """The phrases in lines of at most so many `columns`, broken between phrases; one that is longer has a line of its
    own."""
    from rich.cells import cell_len  # imported here, as in `progress`

    widths = [cell_len(phrase) + len(SPACES) for phrase in phrases]
    starts = starts_of(widths, columns + len(SPACES))
    return [SPACES.join(phrases[start:end]) for start, end in pairwise([*starts, len(widths)])]


def starts_of(widths: Sequence[int], room: int) -> list[int]:
    """The index of the first element of each line or block, when each takes as many elements as fit into `room` columns
    by their `widths`, and at least one."""
    starts, taken = [0], 0
    for index, width in enumerate(widths):
        if taken and taken + width > room:
            starts.append(index)
            taken = 0
        taken += width
    return starts


def metric_phrases(
    evaluated: ExchangeRecord | None, version: int, noun: Noun, *, watched: str | None = None
) -> list[str]:
    """The phrases on the latest evaluated model, of whose exchange this is the record; none for None. `version`: number
    of the latest exchange; `noun`: of exchanges; `watched`: only the headline metric and this one are told, "": the
    headline alone; None: all are."""
    if evaluated is None:
        return []
    found, headline = evaluated.metrics, next(iter(evaluated.metrics))
    names = dict.fromkeys((headline, *(found if watched is None else (watched,))))
    told = {name: found[name] for name in names if name in found}
    texts = metric_texts(told, evaluated.metric_scales, evaluated.measured_at, version, noun)
    return texts + (whose_model(evaluated.peer) if evaluated.measured_own else [])
