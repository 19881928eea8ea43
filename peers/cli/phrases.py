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


class MetricPhrases:
    """The phrases on the latest evaluated model of a run. `update` takes the record of an evaluation."""

    def __init__(self) -> None:
        self._evaluated: dict[str, ExchangeRecord] = {}
        """Peer -> the record of the exchange that gave the last model which it evaluated, the latest record last."""
        self._whole = False
        """Whether all metrics have been shown: then they are to the end, because one that goes seems to be lost."""

    def update(self, record: ExchangeRecord) -> None:
        """Take a record that has metrics into account."""
        self._evaluated.pop(record.peer, None)
        self._evaluated[record.peer] = record

    def between(
        self, first: Sequence[str], rest: Sequence[str], width: int, version: int, noun: Noun, watched: str
    ) -> list[str]:
        """The phrases `first`, those on the model, and the `rest`. `version`: number of the latest exchange; `noun`: of
        exchanges. Of the metrics these are the headline and the one that is `watched`, "": none is; and further ones
        from the moment on when they take no more lines of `width` terminal columns, of which 0 are not known."""
        evaluated = max(reversed(self._evaluated.values()), key=lambda record: record.version, default=None)
        if evaluated is None:
            return [*first, *rest]
        found, told = evaluated.metrics, evaluated.metric_scales
        of = whose_model(evaluated.peer) if evaluated.measured_own else []
        names = dict.fromkeys((next(iter(found)), watched))
        brief, whole = (
            [*first, *metric_texts(shown, told, evaluated.measured_at, version, noun), *of, *rest]
            for shown in ({name: found[name] for name in names if name in found}, found)
        )
        if width == 0 or len(whole) == len(brief):
            return brief
        self._whole = self._whole or len(between_phrases(whole, width)) == len(between_phrases(brief, width))
        return whole if self._whole else brief
