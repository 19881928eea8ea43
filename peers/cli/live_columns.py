"""The columns of the live table, and the choice of the columns that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Column, Table

from ..records.units import plain
from .fitting import natural_width, plain_table

FIRST: Final[Mapping[str, int]] = {"peer": 0, "state": 0, "steps/s": 70, "step": 0, "": 104, "loss": 0}
"""The first columns -> the terminal width from which each is shown. The nameless column is a progress bar of the local
steps. The conversation's own columns follow, shown from the width `OWN_FROM` on, and then `LAST`. When the numbers do
not fit, the columns with the greatest of these widths are dropped first."""
OWN_FROM: Final = 78
LAST: Final[Mapping[str, int]] = {"out": 56, "in": 56, "last event": 84}
NAME_LETTERS: Final = 20
NAME_LETTERS_LEAST: Final = 10
"""The number of characters to which peers' names are cut when `NAME_LETTERS` do not fit."""
EVENT_LETTERS_LEAST: Final = 12


def with_own(own: Iterable[str]) -> Mapping[str, int]:
    """All columns -> the terminal width from which each is shown; `own`: the conversation's columns."""
    return {**FIRST, **dict.fromkeys(own, OWN_FROM), **LAST}


def fitted(columns: Mapping[str, int], rows: Sequence[Mapping[str, RenderableType]], width: int) -> Table:
    """The live table in `width` terminal columns. `columns`: name -> the width from which it is shown; `rows`: the
    cells by column. When the rows do not fit, peers' names are cut first, and then columns left out, those with the
    greatest widths first."""
    drawn, letters = [name for name, at_least in columns.items() if width >= at_least], NAME_LETTERS
    while _room_needed(drawn, rows, letters) > width:
        if letters > NAME_LETTERS_LEAST:
            letters = NAME_LETTERS_LEAST
        elif columns[least := max(drawn, key=columns.__getitem__)]:
            drawn.remove(least)
        else:
            break
    return _table(drawn, rows, letters)


def _room_needed(drawn: Sequence[str], rows: Sequence[Mapping[str, RenderableType]], letters: int) -> int:
    """The width, in terminal columns, of the table in which only names and events are cut."""
    whole = [name for name in drawn if name != "last event"]
    return natural_width(_table(whole, rows, letters)) + (EVENT_LETTERS_LEAST if len(whole) < len(drawn) else 0)


def _table(drawn: Sequence[str], rows: Sequence[Mapping[str, RenderableType]], letters: int) -> Table:
    table = plain_table(*(_column(name, letters) for name in drawn), expand="last event" in drawn)
    for cells in rows:
        table.add_row(*(cells[name] for name in drawn))
    return table


def _column(name: str, letters: int) -> Column:
    if name == "":
        return Column("", width=12)
    if name == "last event":
        return Column(name, no_wrap=True, ratio=1)
    left = name in ("peer", "state")
    most = letters if name == "peer" else None
    return Column(plain(name, 40), no_wrap=True, justify="left" if left else "right", max_width=most)
