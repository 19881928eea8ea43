"""The names of settings: the common ones, and those of a conversation."""

from __future__ import annotations

import dataclasses
import difflib
import json
import textwrap
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .common import CommonSettings
from .fields import Spoken

_KNOWN_LETTERS = 380
"""The most characters of setting names in an error's line."""
COMMON = {field.name: field for field in dataclasses.fields(CommonSettings)}
PROTOCOL = COMMON["protocol"]


def fields_of(spoken: Spoken) -> dict[str, dataclasses.Field[Any]]:
    """Name -> declaration of all settings of a run with this conversation: the common ones, then its own."""
    return COMMON | {field.name: field for field in dataclasses.fields(spoken.value)}


def agreed_of(spoken: Spoken) -> dict[str, dataclasses.Field[Any]]:
    """Name -> declaration of the settings of a run with this conversation whose values must be the same at all
    peers."""
    return {name: field for name, field in fields_of(spoken).items() if field.metadata["agreed"]}


def present_names(fields: Mapping[str, dataclasses.Field[Any]]) -> dict[str, str]:
    """Former name of a setting -> its present name."""
    return {former: name for name, field in fields.items() if (former := field.metadata["former"])}


def unknown(key: str, spoken: Spoken) -> str:
    """The text of an error for `key`, which names no setting of a run with this conversation. With a hint: the
    conversation whose setting it is, else the most similar name, else all names."""
    fields, name = fields_of(spoken), key[:100].replace("-", "_")
    if other := import_module("..conversations.loading", __package__).of_another(name, spoken):
        return f"{name} is a setting of --protocol {other}, not of {spoken.name}"
    close = difflib.get_close_matches(name, fields, n=1)
    known = textwrap.shorten(", ".join(fields), _KNOWN_LETTERS, placeholder=" ... (samovar train --help tells all)")
    hint = f'did you mean "{close[0]}"?' if close else f"known are {known}"
    return f"unknown key {json.dumps(key[:60])}; {hint}"
