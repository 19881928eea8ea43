"""A TOML file of settings, read with the line of each key. Every fault is one line that names the file and its line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

BYTES_MAX = 1 << 20
LINE_CHARS_MAX = 5000
_KEY = re.compile(r"""[ \t]*\[{0,2}[ \t]*(?:"([^"]*)"|'([^']*)'|([\w-]+))[ \t]*[=.\]]""", re.ASCII)
_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it was written, its value, and where it stands."""

    key: str
    value: object
    place: str


def read_toml(path: Path) -> list[Entry]:
    """The top-level entries, in order. Accepts a byte order mark and CRLF. Raises ValueError."""
    text = _text(path)
    all_lines = text.rstrip().split("\n")
    for number, line in enumerate(all_lines, 1):
        if len(line) > LINE_CHARS_MAX:  # tomllib takes minutes for a long enough dotted key
            raise ValueError(f"{path}, line {number}: longer than {LINE_CHARS_MAX} characters")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Not TOMLDecodeError alone: a number of 5000 digits and deep nesting fail in ways of their own.
        said = " ".join(str(error).split())
        at = _AT.search(said)
        where = f", line {at[1] or len(all_lines)}" if at else ""
        raise ValueError(f"{path}{where}: not TOML: {said[: at.start()] if at else said:.200}") from None
    lines: dict[str, int] = {}
    for number, line in enumerate(all_lines, 1):
        if found := _KEY.match(line):
            lines.setdefault(next(filter(None, found.groups()), ""), number)
    return [
        Entry(key, value, f"{path}, line {lines[key]}" if key in lines else str(path)) for key, value in table.items()
    ]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(f"{path}: cannot be read: {why[:1].lower()}{why[1:]}") from None
    if len(raw) > BYTES_MAX:
        raise ValueError(f"{path}: larger than 1 MiB, which no settings file is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text") from None
