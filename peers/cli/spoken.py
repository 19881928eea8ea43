"""The conversation that a command line names, found without the settings, which import PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ..records.run import SETTINGS_FILE
from ..settings.toml_file import read_toml

_SOURCES: Final = ("protocol", "config", "scenario", "resume")
"""The options that may choose the conversation; the first given one does."""


def sources(args: Sequence[str]) -> dict[str, str]:
    """The options ``--protocol``, ``--config``, ``--scenario`` and ``--resume`` that the command line `args` has: name
    -> value, in this order. The first that names a conversation decides."""
    look = click.Command(
        None,
        params=[click.Option([f"--{name}"]) for name in _SOURCES],
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    with look.make_context("", [*args], resilient_parsing=True) as found:
        return {name: value for name in _SOURCES if (value := found.params[name]) is not None}


def named_by(source: str, value: str) -> object:
    """The name of the conversation, unchecked, that the option `source` with this `value` gives: `value` itself for
    "protocol", else the setting `protocol` in the file or run folder `value`; None: there is no such setting. Raises
    OSError and ValueError for a file that cannot be read."""
    if source == "protocol":
        return value
    if source == "resume":
        kept = json.loads((Path(value) / SETTINGS_FILE).read_text(encoding="utf-8"))
        return kept.get("protocol") if isinstance(kept, dict) else None
    table = read_toml(Path(value)).table
    settings = table.get("settings", {}) if source == "scenario" else table
    return settings.get("protocol") if isinstance(settings, dict) else None
