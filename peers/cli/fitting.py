"""Tables and lines that are folded on a narrow terminal, so that no number loses a digit or its unit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from .phrases import between_phrases, starts_of

_APART: Final = 2
"""Spaces between two columns."""
_BOUNDLESS: Final = Console(width=100_000, file=io.StringIO(), _environ={})


def plain_table(*columns: Column, expand: bool = False) -> Table:
    """A table without lines between its cells. `expand`: as wide as the terminal."""
    return Table(*columns, box=None, header_style="dim", pad_edge=False, padding=(0, _APART, 0, 0), expand=expand)


def natural_width(table: Table) -> int:
    """The width in terminal columns of `table` when nothing is cut."""
    return _BOUNDLESS.measure(table).maximum


class Folded:
    """A table that folds: columns that do not fit beside the others stand in further blocks below.

    `repeated`: the number of first columns that identify a row, such as its name; every block begins with them.
    """

    def __init__(self, *columns: Column, repeated: int = 1) -> None:
        self._columns, self._repeated = columns, repeated
        self._rows: list[tuple[Sequence[RenderableType], str]] = []

    def add_row(self, *cells: RenderableType, style: str = "") -> None:
        """Add a row. `cells`: one for each column; `style`: of the whole row."""
        self._rows.append((cells, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        each = [natural_width(self._table([index])) + _APART for index in range(len(self._columns))]
        room = options.max_width + _APART - sum(each[: self._repeated])
        starts = starts_of(each[self._repeated :], room)
        while len(starts) > 1 and len(closer := starts_of(each[self._repeated :], room - 1)) == len(starts):
            room, starts = room - 1, closer  # the fewest blocks, as equal in width as possible
        ends = [self._repeated + start for start in (*starts, len(each) - self._repeated)]
        for number, (start, end) in enumerate(pairwise(ends)):
            if number:
                yield ""
            yield self._table([*range(self._repeated), *range(start, end)])

    def _table(self, shown: Sequence[int]) -> Table:
        table = plain_table(*(self._columns[index].copy() for index in shown))
        for cells, style in self._rows:
            table.add_row(*(cells[index] for index in shown), style=style)
        return table


class Phrases:
    """Phrases in one bold line. If that is too long for the terminal, it is broken between phrases. A phrase longer
    than a line is broken between words."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self._phrases = phrases

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in between_phrases(self._phrases, options.max_width):
            yield Text(line, style="bold")
