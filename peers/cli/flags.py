"""Settings as flags of a command, and the groups of flags in its help."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from ...aggregation.options import spelled
from ..settings.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "When peers average": (
        "period", "period_initial", "period_block_s", "overlap", "overlap_share",
    ),
    "What they average": ("average", "outer", "inner", "fragments"),
    "Peers that differ": ("pace", "drift", "site", "site_period"),
    "Connections": ("protocol", "schedule", "codec", "listen", "advertise", "link"),
    "Keys": ("invite", "peer_key", "key", "authorized", "insecure", "name", "invite_uses", "invite_for"),
    "Faults, in seconds": (
        "patience_s", "compute_patience_s", "quorum", "give_up_after_s", "norm_limit", "memory_limit",
    ),
    "Computing": ("peers", "steps", "device", "threads", "seed", "step_time"),
    "Sweeps": ("sweep", "minimise"),
    "Files and output": (
        "config", "run", "resume", "scenario", "evaluate_every", "checkpoint_every_s", "report", "as_json", "quiet",
    ),
}  # fmt: skip
"""Groups of options by purpose, in the order of the help."""


class GroupedCommand(click.Command):
    """A command whose help lists the options `first`, for beginners, and then the others by purpose."""

    def __init__(self, *arguments: Any, first: tuple[str, ...], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.first = first

    def groups(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """The options of each group, in the order of the help."""
        left = {
            option.name: option
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and not option.hidden
        }
        names = {"To begin with": self.first, **GROUPS}
        found = {title: [left.pop(name) for name in group if name in left] for title, group in names.items()}
        return {title: options for title, options in (*found.items(), ("Help", [*left.values()])) if options}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in self.groups(ctx).items():
            rows = [row for option in options if (row := option.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl([(re.sub(r"--(\S+) / --no-\1", r"--[no-]\1", flag), text) for flag, text in rows])


class _Name(click.Choice[str]):
    """A choice of several names, written with hyphens or underscores."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = spelled(str(value))
        return super().convert(known if known in self.choices else value, param, ctx)


def click_options(*names: str) -> Callable[[Command], Command]:
    """Options for these settings, for all if none is named. A setting's former name becomes a hidden option. The
    command receives None for each option that is not given."""

    def add(command: Command) -> Command:
        for name in reversed(names or tuple(_FIELDS)):
            if former := _FIELDS[name].metadata["former"]:
                command = _option(_FIELDS[name], former, hidden=True)(command)
            command = _option(_FIELDS[name], name)(command)
        return command

    return add


def _option(field: dataclasses.Field[Any], name: str, *, hidden: bool = False) -> Callable[[Command], Command]:
    rule, flag, text = field.metadata["rule"], f"--{name.replace('_', '-')}", field.metadata["help"]
    if rule.kind is bool:
        both, text = f"{flag}/--no-{flag[2:]}", f"{text} [default: {flag[2:]}]" if field.default else text
        return click.option(both, name, default=None, help=text, hidden=hidden)
    if field.default is not None:
        text += f" [default: {field.default:g}]" if rule.kind is float else f" [default: {field.default}]"
    kind = _Name(rule.choices) if rule.choices else rule.kind
    return click.option(flag, name, type=kind, default=None, metavar=rule.metavar, help=text, hidden=hidden)
