"""Settings as a user has given them, by flags or in a file, under their present or their former names."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..conversations.loading import of_others
from ..settings.fields import SettingsError, Spoken
from ..settings.names import fields_of, flag_of, present_names
from ..settings.toml_file import Entry

Tell = Callable[[str], None]
"""Called with one line for the user, such as that a setting was given by its former name."""

_KNOWN_LETTERS = 380
"""The most characters of setting names in an error's line."""


class Given(NamedTuple):
    """A setting's value, the flag or file and line that gave it, and its name there: the present or the former one."""

    value: Any
    place: str
    key: str


def of_entries(entries: Iterable[Entry], spoken: Spoken, tell: Tell) -> dict[str, Given]:
    """The settings in a file's `entries`, by present name. `spoken`: the run's conversation, whose own settings are
    valid too. Calls `tell` for each former name. Raises SettingsError for an unknown name and for a setting that is
    given twice. Values are not checked."""
    found: dict[str, Given] = {}
    fields = fields_of(spoken)
    present = present_names(fields)
    for entry in entries:
        key = entry.key.replace("-", "_")
        place = f"{entry.place}: {key}"
        if (name := present.get(key, key)) not in fields:
            raise SettingsError(unknown(entry.key, spoken), place=f"{entry.place}:")
        if name in found:
            other = found[name].key
            how = "with a dash and with an underscore" if key == other else f"as {other} and as {key}"
            raise SettingsError(f"is given twice, {how}", place=place)
        if key != name:
            tell(f"{place} is called {name} now")
        found[name] = Given(entry.value, place, key)
    return found


def of_flags(flags: Mapping[str, object], spoken: Spoken, tell: Tell) -> dict[str, Given]:
    """The settings in a command line's `flags`, which are named as settings are, by present name; a value of None is a
    flag that was not given. `spoken`: the run's conversation, whose own settings are valid too. Calls `tell` for each
    former name. Raises SettingsError for an unknown name and for a setting that is given twice. Values are not
    checked."""
    found: dict[str, Given] = {}
    fields = fields_of(spoken)
    present = present_names(fields)
    for key, value in flags.items():
        if value is None:
            continue
        if (name := present.get(key, key)) not in fields:
            raise SettingsError(unknown(key, spoken))
        if name in found:
            raise SettingsError(
                f"is given twice, as {flag_of(found[name].key)} and as {flag_of(key)}", place=flag_of(name)
            )
        if key != name:
            tell(f"{flag_of(key)} is called {flag_of(name)} now")
        found[name] = Given(value, flag_of(key), key)
    return found


def unknown(key: str, spoken: Spoken) -> str:
    """The text of an error for `key`, which names no setting of a run with this conversation. With a hint: the
    conversation whose setting it is, else the most similar name, else all names."""
    fields, name = fields_of(spoken), key[:100].replace("-", "_")
    if others := of_others(name, spoken):
        instead = spoken.value.instead.get(name)
        said = f"{name} is a setting of --protocol {' and '.join(others)}, not of {spoken.name}"
        return f"{said}; {instead}" if instead else said
    close = difflib.get_close_matches(name, fields, n=1)
    known = textwrap.shorten(", ".join(fields), _KNOWN_LETTERS, placeholder=" ... (samovar train --help tells all)")
    hint = f'did you mean "{close[0]}"?' if close else f"known are {known}"
    return f"unknown key {json.dumps(key[:60])}; {hint}"
