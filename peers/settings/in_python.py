"""Messages about settings in the words of a caller of Python."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

_UNKNOWN = re.compile(r"\Aunknown key")  # further on it is the key of a file
_COMMAND = r"samovar (?:train|join|invite|simulate|plan|report|keys|doctor|serve)\b(?:[^;,)]|[;,](?=\S))*"
_TASKS_OWN = r"(?<!\w)'--[^']*'"  # arguments of a task, which messages quote
_FLAG = re.compile(
    rf"({_COMMAND}|{_TASKS_OWN})|(?<![\w-])--(no-)?([a-z][a-z-]*[a-z])(?: (\d[\w.]*|[A-Z]{{2,}}\b|\S*/[^\s;,)]*))?"
)
_OF_FILE = re.compile(r"\A\S.*, line \d+: ")  # it has TOML's own words for values
_BOOL = re.compile(r"(?<= must be )true or false\b|(?<=, got )(?:true|false)\Z")


def python_words(text: str) -> str:
    """A message for a user of the command line in words for a caller of Python: `--period 16` becomes `period=16`,
    and `true` is `True`, unless the message is about a line of a file. Whole commands, which are to be typed in a
    shell, stay as they are, and so do a task's own arguments in quotes."""
    text = _UNKNOWN.sub(
        "no such argument", text.replace("samovar train --help tells all", "help(samovar.Settings) tells all")
    )
    text = text if _OF_FILE.match(text) else _BOOL.sub(lambda found: found[0].replace("t", "T").replace("f", "F"), text)
    return _FLAG.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    as_told, no, name, value = found.groups()
    if as_told:
        return str(as_told)
    name = name.replace("-", "_")
    if no:
        return f"{name}=False"
    return f"{name}={value if value[0].isdigit() or value.isupper() else repr(value)}" if value else name


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """A context whose errors name arguments of Python in place of flags. It changes errors that have one text and
    nothing else as their arguments."""
    try:
        yield
    except Exception as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (python_words(error.args[0]),)
        raise
