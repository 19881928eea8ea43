"""The columns of a conversation: the numbers that its records hold beside those of every conversation.

A column has a name and a title, with the unit in parentheses: ``{"period": "Averaging period (local steps)"}``. A
column with an empty title is recorded and not shown. A column called `round` declares that exchanges are rounds: the
records of all peers with one round number are records of one common exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

Columns = Mapping[str, str]
Noun = Literal["round", "exchange"]

ACCURACY: Final = "accuracy"
"""The name of a metric that a task gives as a plain number without declaring one."""

KNOWN: Final = "known"
"""The column of the number of members that the recording peer knows, where fewer of them take part in an exchange."""

ROUNDS: Final[Columns] = {"round": "Round", "generation": "", "period": "Averaging period (local steps)"}
"""The columns of local SGD, whose exchanges are rounds. All records of schema 1 have them."""


SINCE_LAST: Final = "since its last record"
"""The unit of a column that counts from one record of a peer to its next. Such a number says nothing between them, so
that it is in the report and not in the live table."""


def noun(columns: Iterable[str]) -> Noun:
    """The word for an exchange in texts, for records with these columns: "round" if one is called `round`, else
    "exchange"."""
    return "round" if "round" in columns else "exchange"


def shown(columns: Columns) -> Columns:
    """The columns that are shown, by name, each with its title: those whose title is not empty. `round` is not among
    them, because each exchange has a number anyway."""
    return {name: title for name, title in columns.items() if title and name != "round"}


def live(columns: Columns) -> list[str]:
    """The names of the columns in the live table, in their order: those that are `shown`, without those that count
    since a peer's last record (`SINCE_LAST`)."""
    return [name for name, title in shown(columns).items() if unit(title) != SINCE_LAST]


def heading(title: str) -> str:
    """The title without its unit: 'Averaging period (local steps)' -> 'Averaging period'."""
    return title.partition(" (")[0]


def unit(title: str) -> str:
    """The unit in a title: 'Averaging period (local steps)' -> 'local steps'; '' where there is none."""
    return title.partition(" (")[2].removesuffix(")")
