"""peers/cli/completions.json, made from the commands: python tests/support/completion_table.py"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import click

from samovar.__main__ import _VERBS
from samovar.peers.cli.completion import TABLE
from samovar.peers.cli.flags import SettingsCommand, chosen_protocol
from samovar.peers.conversations.registry import CONVERSATIONS


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of one command: those of the conversations' own settings name their conversations."""
    command: click.Command = getattr(import_module(_VERBS[name].module), name)
    if not isinstance(command, SettingsCommand):
        return [row(one) for one in command.params]
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for protocol in CONVERSATIONS:
        with command.make_context(name, ["--protocol", protocol], resilient_parsing=True) as context:
            for one in command.get_params(context)[:-1]:  # the last is --help, which every command has
                text = json.dumps(told := row(one))
                found.setdefault(text, (told, []))[1].append(protocol)
    return [told | ({} if len(of) == len(CONVERSATIONS) else {"of": of}) for told, of in found.values()]


def usual() -> dict[str, str]:
    """By command with settings, the conversation of a line that names none."""
    found = {}
    for name in _VERBS:
        command: click.Command = getattr(import_module(_VERBS[name].module), name)
        if isinstance(command, SettingsCommand):
            with command.make_context(name, [], resilient_parsing=True):
                found[name] = chosen_protocol().name
    return found


def row(one: click.Parameter) -> dict[str, Any]:
    kind: dict[str, Any] = {"kind": "path" if isinstance(one.type, click.Path) else "text"}
    if isinstance(one.type, click.Choice):
        kind["choices"] = [*one.type.choices]
    if isinstance(one, click.Argument):
        shown = {"metavar": one.metavar} if one.metavar else {}
        flags = {"many": one.nargs == -1, "required": one.required}
        return {"argument": one.name, **kind, **shown} | {name: True for name, holds in flags.items() if holds}
    assert isinstance(one, click.Option)
    assert one.nargs == 1
    flags = ["/".join((*one.opts, *one.secondary_opts))] if one.secondary_opts else one.opts
    if one.is_flag:
        kind = {"kind": "flag"}
    elif one._flag_needs_value:
        kind = {"kind": "optional"}
    return {"flags": flags, **kind, "help": one.help} | ({"hidden": True} if one.hidden else {})


def page() -> str:
    """The file's text, a row in each line."""
    commands = {
        name: ",\n".join(f"   {json.dumps(told, ensure_ascii=False)}" for told in rows(name)) for name in _VERBS
    }
    lists = ",\n".join(f'  "{name}": [\n{told}\n  ]' for name, told in commands.items())
    known = f' "protocols": {json.dumps([*CONVERSATIONS])},\n "usual": {json.dumps(usual())},\n'
    return f'{{\n{known} "commands": {{\n{lists}\n }}\n}}\n'


if __name__ == "__main__":
    TABLE.write_text(page(), encoding="utf-8")
