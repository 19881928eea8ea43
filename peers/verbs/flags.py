"""Settings as flags of a command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


def click_options(*names: str) -> Callable[[Command], Command]:
    """Options for these settings, all if none is named. The command gets None for each that is not given."""

    def add(command: Command) -> Command:
        for name in reversed(names or tuple(_FIELDS)):
            command = _option(_FIELDS[name])(command)
        return command

    return add


def _option(field: dataclasses.Field[Any]) -> Callable[[Command], Command]:
    rule, flag, text = field.metadata["rule"], f"--{field.name.replace('_', '-')}", field.metadata["help"]
    if rule.kind is bool:
        both, text = f"{flag}/--no-{flag[2:]}", f"{text} [default: {'' if field.default else 'no-'}{flag[2:]}]"
        return click.option(both, field.name, default=None, help=text)
    if field.default is not None:
        text += f" [default: {field.default:g}]" if rule.kind is float else f" [default: {field.default}]"
    kind = click.Choice(rule.choices) if rule.choices else rule.kind
    return click.option(flag, field.name, type=kind, default=None, metavar=rule.metavar, help=text)
