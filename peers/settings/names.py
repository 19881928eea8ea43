"""The names of settings: the common ones, and those of a conversation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .common import CommonSettings
from .fields import Spoken

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
    """Former name of a setting -> its present name, for those of `fields` that have a former name."""
    return {former: name for name, field in fields.items() if (former := field.metadata["former"])}


def flag_of(name: str) -> str:
    """The command line's flag for the setting `name`: ``--local-steps`` for ``local_steps``."""
    return f"--{name.replace('_', '-')}"
