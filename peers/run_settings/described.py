"""The documentation of every setting, for ``help(samovar.Settings)``, made from the declarations."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..settings.in_python import python_words

_WIDTH = 88


class Described:
    """A docstring that is made when it is read, because the declarations of conversations are imported late. `text`:
    its beginning; `groups`: returns the declared settings by the heading over them."""

    def __init__(self, text: str | None, groups: Callable[[], Mapping[str, Iterable[dataclasses.Field[Any]]]]) -> None:
        self._text, self._groups = text, groups

    def __get__(self, instance: object, owner: type | None = None) -> str:
        told = [f"{heading}:\n\n" + "\n".join(map(description, fields)) for heading, fields in self._groups().items()]
        return "\n\n".join([inspect.cleandoc(self._text or ""), *told])


def description(field: dataclasses.Field[Any]) -> str:
    """The lines on one setting: its name and default, its purpose, and its valid values, in words for Python."""
    default = repr(field.default) if isinstance(field.default, str) else str(field.default)
    said = f"{field.metadata['help']} It must be {field.metadata['rule'].said}{_or_none(field)}."
    lines = textwrap.wrap(python_words(said), _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([f"{field.name} = {default}", *lines])


def _or_none(field: dataclasses.Field[Any]) -> str:
    return ", or None" if field.default is None else ""
