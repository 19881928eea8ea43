"""Phrases in lines, broken between phrases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

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
