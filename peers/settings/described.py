"""The documentation of every setting, for ``help(samovar.Settings)``, made from the declarations."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

_WIDTH = 88


class Described:
    """A docstring that is made when it is read, because the declarations of conversations are imported late. `text`:
    its beginning; `fields`: returns the declared settings by name."""

    def __init__(self, text: str | None, fields: Callable[[], Mapping[str, dataclasses.Field[Any]]]) -> None:
        self._text, self._fields = text, fields

    def __get__(self, instance: object, owner: type | None = None) -> str:
        return f"{inspect.cleandoc(self._text or '')}\n\nSettings:\n\n" + "\n".join(
            map(description, self._fields().values())
        )


def description(field: dataclasses.Field[Any]) -> str:
    """The lines on one setting: its name and default, its purpose, and its valid values."""
    default = repr(field.default) if isinstance(field.default, str) else str(field.default)
    said = f"{field.metadata['help']} It must be {field.metadata['rule'].said}{_or_none(field)}."
    lines = textwrap.wrap(said, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([f"{field.name} = {default}", *lines])


def _or_none(field: dataclasses.Field[Any]) -> str:
    return ", or None" if field.default is None else ""
