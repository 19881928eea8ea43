"""A parsed TOML file of settings, with the line number of each key. An error is one line of text that names file and
line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..reasons import reason

BYTES_MAX = 1 << 20
LINE_CHARS_MAX = 5000
_WORD = r"""(?:"([^"]*)"|'([^']*)'|([\w-]+))"""
_KEY = re.compile(rf"[ \t]*(\[{{0,2}})[ \t]*{_WORD}[ \t]*[=.\]]", re.ASCII)
_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it is written in the file, its value, and its place: "FILE, line N"."""

    key: str
    value: object
    place: str


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed TOML file. `table`: its contents. `lines`: path of a key, e.g. ("groups", 0, "link"), -> line number."""

    path: Path
    table: dict[str, Any]
    lines: dict[tuple[str | int, ...], int]

    def place(self, *keys: str | int) -> str:
        """The place of ``table[key][key]...``, "FILE, line N": its own line if that is known, else the line of the
        table around it. "FILE" alone if no line is known."""
        for depth in range(len(keys), 0, -1):
            if keys[:depth] in self.lines:
                return f"{self.path}, line {self.lines[keys[:depth]]}"
        return str(self.path)

    def entries(self, *keys: str | int) -> list[Entry]:
        """The entries of the table at `keys`, in order."""
        table: Any = self.table
        for key in keys:
            table = table[key]
        return [Entry(key, value, self.place(*keys, key)) for key, value in table.items()]


def read_toml(path: Path, what: str = "settings file") -> TomlFile:
    """Read a TOML file; a byte order mark and CRLF are accepted. `what`: its kind, for the error. Raises ValueError, in
    one line with the place, for a file that cannot be read, is larger than 1 MiB, has a line of more than 5000
    characters, or is not TOML."""
    text = read_text(path, what)
    all_lines = text.rstrip().split("\n")
    for number, line in enumerate(all_lines, 1):
        if len(line) > LINE_CHARS_MAX:  # tomllib takes minutes for a long enough dotted key
            raise ValueError(f"{path}, line {number}: longer than {LINE_CHARS_MAX} characters")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Not TOMLDecodeError alone: a number of 5000 digits and deep nesting raise other errors.
        said = " ".join(str(error).split())
        at = _AT.search(said)
        where = f", line {at[1] or len(all_lines)}" if at else ""
        raise ValueError(f"{path}{where}: not TOML: {said[: at.start()] if at else said:.200}") from None
    return TomlFile(path, table, _lines(all_lines))


def read_text(path: Path, what: str = "settings file") -> str:
    """The text of a file. Raises ValueError when it cannot be read, is larger than 1 MiB, or is not UTF-8."""
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {reason(error)}") from None
    if len(raw) > BYTES_MAX:
        raise ValueError(f"{path}: larger than 1 MiB, which no {what} is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text") from None


def _lines(lines: Sequence[str]) -> dict[tuple[str | int, ...], int]:
    """Path of a key -> number of the first line that has it, for keys, tables and rows of ``[[tables]]``."""
    found: dict[tuple[str | int, ...], int] = {}
    inside: tuple[str | int, ...] = ()
    rows: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if (match := _KEY.match(line)) is None:
            continue
        key = next(filter(None, match.groups()[1:]), "")
        if match[1] == "[[":
            rows[key] = rows.get(key, -1) + 1
            found.setdefault((key,), number)
        if match[1]:
            inside = (key, rows[key]) if match[1] == "[[" else (key,)
        found.setdefault(inside if match[1] else (*inside, key), number)
    return found
