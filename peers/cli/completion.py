"""The completion of flags and values by a shell, and the error of a command without its arguments, without the import
of PyTorch, which takes seconds.

`completions.json` has the parameters of every command, a line for each. `tests/support/completion_table.py` makes it
from the commands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from .spoken import named_by, sources

TABLE: Final = Path(__file__).with_name("completions.json")


def known(command: str, args: Sequence[str]) -> click.Command | None:
    """A command of click with the parameters of the command named `command`, which serves to complete a command line
    and does nothing when called. `args`: the words typed after the name so far; they choose the conversation whose
    settings are among the parameters. None: they choose one that is not the library's, whose settings only its own code
    knows, or the command is not in the table."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    if command not in table["commands"]:
        return None
    protocol = _named(args) or table["usual"].get(command, table["protocols"][0])
    if protocol not in table["protocols"]:
        return None
    rows = (row for row in table["commands"][command] if protocol in row.get("of", (protocol,)))
    return click.Command(command, params=[_parameter(row) for row in rows])


def _named(args: Sequence[str]) -> str | None:
    """The conversation that a command line names; None: it names none."""
    for source, value in sources(args).items():
        try:
            if (name := named_by(source, value)) is not None:
                return str(name).replace("-", "_")
        except (OSError, ValueError):
            continue
    return None


def _parameter(row: Mapping[str, Any]) -> click.Parameter:
    """The parameter in one row. `kind`: "text", "path", "flag" or "optional", an option whose value may be left out;
    `choices`: all values of a text; `many`: an argument takes all words that are left; `required`: it takes one at
    least; `metavar`: its name in an error, where that is not the usual one."""
    kind = click.Choice(row["choices"]) if "choices" in row else click.Path() if row["kind"] == "path" else click.STRING
    if "argument" in row:
        shown = {"metavar": row.get("metavar"), "required": row.get("required", False)}
        return click.Argument([row["argument"]], type=kind, nargs=-1 if row.get("many") else 1, **shown)
    more: dict[str, Any] = {"help": row.get("help"), "hidden": row.get("hidden", False)}
    if row["kind"] == "flag":
        return click.Option(row["flags"], is_flag=True, **more)
    if row["kind"] == "optional":
        more |= {"is_flag": False, "flag_value": ""}
    return click.Option(row["flags"], type=kind, **more)
