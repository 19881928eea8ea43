"""Reading one table of a TOML file key by key. An error is one line of text that names file, line and key."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ...protocols.members.attributes import SERVER
from .link_text import parse_duration, parse_link, parse_rate, parse_size
from .toml_file import TomlFile
from .validators import shown

T = TypeVar("T")
U = TypeVar("U")
_SHOWN_CHARS = 60


class TableError(ValueError):
    """An invalid table, key or value in a TOML file. The text is one line for the user."""


class Row:
    """The table of `file` at the path `keys`, where the file must have a value. Construction raises TableError if that
    is no table, has a key that is not among the `known` names, or has one twice. A key may be written with dashes or
    underscores; `known` and the methods have underscores."""

    def __init__(self, file: TomlFile, keys: tuple[str | int, ...], known: Collection[str]) -> None:
        self.name = " ".join(str(key) if isinstance(key, str) else f"number {key + 1}" for key in keys)
        self._place = file.place(*keys)
        self._found: dict[str, tuple[object, str]] = {}
        table: Any = file.table
        for key in keys:
            table = table[key]
        if not isinstance(table, dict):
            raise TableError(f"{self._place}: {self.name} must be a table, got {shown(table)}")
        for entry in file.entries(*keys):
            name = entry.key.replace("-", "_")
            if name not in known:
                raise TableError(f"{entry.place}: unknown key {shown(entry.key)}; {near(name, known)}")
            if name in self._found:
                raise TableError(f"{entry.place}: {name} is given twice, with a dash and with an underscore")
            self._found[name] = (entry.value, entry.place)

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def take(self, key: str, how: Callable[[object], T], *default: U) -> T | U:
        """The value of `key`, checked and converted by `how`. If the key is missing: the `default` as it is. Raises
        TableError when `how` raises ValueError, and when the key is missing and no default is given."""
        if key not in self._found:
            if default:
                return default[0]
            raise TableError(f"{self._place}: {self.name}: {key} is missing")
        try:
            return how(self._found[key][0])
        except ValueError as error:
            raise self.wrong(key, str(error)) from None

    def wrong(self, key: str, problem: str) -> TableError:
        """The error, for the caller to raise, that the value of `key` has this `problem`; without such a key, or with
        "", that the table has it. `problem`: words that follow the name."""
        where = f"{self._found[key][1]}: {key}" if key in self._found else f"{self._place}: {self.name}"
        return TableError(f"{where}: {problem}")


def rows(file: TomlFile, key: str, known: Collection[str]) -> list[Row]:
    """The tables of ``[[key]]``, in order, with `known` as their keys; none if the file has no such key. Raises
    TableError."""
    found = file.table.get(key, [])
    if not isinstance(found, list):
        raise TableError(f"{file.place(key)}: {key} must be tables, each under [[{key}]], got {shown(found)}")
    return [Row(file, (key, number), known) for number in range(len(found))]


def near(name: object, known: Collection[str]) -> str:
    """A hint for an error message: the most similar of the `known` names, or else all of them."""
    close = difflib.get_close_matches(str(name)[:100], known, n=1)
    return f"did you mean {shown(close[0])}?" if close else f"known are {', '.join(known)}"


# Functions that check and convert a value, for `Row.take`. Each raises ValueError.


def whole(least: int, most: int) -> Callable[[object], int]:
    """A function that returns its argument if that is an integer from `least` to `most`, both included, and otherwise
    raises ValueError."""

    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, got {shown(value)}")
        return value

    return read


def number(value: object) -> float:
    """A number from -1e300 to 1e300, as a float. Raises ValueError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, got {shown(value)}")
    if abs(value) > 1e300 or math.isnan(value):
        raise ValueError(f"must be finite, got {shown(value)}")
    return float(value)


def factor(value: object) -> float:
    """A number from 1e-6 to 1e6, as a float. Raises ValueError for any other value."""
    if not 1e-6 <= (read := number(value)) <= 1e6:
        raise ValueError(f"must be a factor from 1e-6 to 1e6, got {shown(value)}")
    return read


def flag(value: object) -> bool:
    """A bool, unchanged. Raises ValueError for any other value."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {shown(value)}")
    return value


def name(value: object) -> str:
    """Printable text of 1 to 60 characters, unchanged. Raises ValueError for any other value."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _SHOWN_CHARS:
        raise ValueError(f"must be a name of 1 to {_SHOWN_CHARS} characters, got {shown(value)}")
    return value


def role(value: object) -> str:
    """The role of a group's peers: `SERVER`, or "" for those that train. Raises ValueError for any other value."""
    if value not in ("", SERVER):
        raise ValueError(f'must be "{SERVER}", got {shown(value)}: without a role its peers train')
    return str(value)


def site(value: object) -> str:
    """The name of one site: as `name`, and without a semicolon. Raises ValueError for any other value."""
    if ";" in (said := name(value)):
        raise ValueError(f"must be the name of one site, got {shown(value)}")
    return said


def file_name(value: object) -> str:
    """The path of a file as non-empty text, unchanged. Whether the file exists isn't checked. Raises ValueError for any
    other value."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"must be the path of a file, got {shown(value)}")
    return value


def _with_unit(parse: Callable[[str], T], what: str) -> Callable[[object], T]:
    def read(value: object) -> T:
        if not isinstance(value, str):
            raise ValueError(f"must be text with a unit, such as {what}, got {shown(value)}")
        if value.strip().startswith("-"):
            raise ValueError(f"must not be negative, got {shown(value)}")
        return parse(value)

    return read


duration = _with_unit(parse_duration, '"5ms" or "2s"')
size = _with_unit(parse_size, '"512MiB" or "2GB"')
rate = _with_unit(parse_rate, '"200kbit" or "10mbit"')
link = _with_unit(parse_link, '"10mbit,40ms"')


def jump(value: object) -> float:
    """Seconds in a duration that may be negative, e.g. "-2s". Raises ValueError for any other value."""
    back = isinstance(value, str) and value.strip().startswith("-")
    return -duration(str(value).strip()[1:]) if back else duration(value)


def some_time(value: object) -> float:
    """Seconds in a duration above 0. Raises ValueError for any other value."""
    if (read := duration(value)) == 0:
        raise ValueError(f"must be above 0, got {shown(value)}")
    return read
