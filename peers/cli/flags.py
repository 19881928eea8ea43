"""Settings as flags of a command, and the groups of flags in its help."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ...aggregation.options import spelled
from ..conversations.loading import chosen, of_others
from ..settings.common import CommonSettings
from ..settings.fields import SettingsError, Spoken
from ..settings.names import PROTOCOL, fields_of
from .spoken import named_by, sources

Command = TypeVar("Command", bound=Callable[..., Any])
_COMMON = {field.name: field for field in dataclasses.fields(CommonSettings)}

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Peers that differ": ("site",),
    "Connections": ("protocol", "listen", "advertise", "edge", "relay_limit", "budget", "budget_per_day", "link"),
    "Keys": ("invite", "peer_key", "key", "authorized", "insecure", "name", "invite_uses", "invite_for"),
    "Faults, in seconds": ("patience_s", "compute_patience_s", "quorum", "give_up_after_s", "memory_limit"),
    "Computing": ("peers", "steps", "device", "threads", "seed", "step_time"),
    "Sweeps": ("sweep", "minimise"),
    "Files and output": (
        "config", "run", "resume", "scenario", "evaluate_every", "checkpoint_every_s", "report", "as_json", "quiet",
    ),
}  # fmt: skip
"""Heading -> names of the options under it, in the order of the help. A conversation's own settings are appended to
these groups, or form groups before them (`OwnSettings.groups`)."""
_DASHED: Final = f"{__name__}.dashed"
"""The key of `ctx.meta` for whether the command line contains ``--``."""
OWN: Final = "(the conversation's)"
"""A placeholder in `GroupedCommand.first` for the options in the chosen conversation's `OwnSettings.first`."""


class GroupedCommand(click.Command):
    """A command whose help lists the options in `first`, which beginners need, and then the others by purpose."""

    def __init__(self, *arguments: Any, first: tuple[str, ...], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._first = first

    def groups(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Heading -> options under it, in the order of the help: "To begin with", then the other purposes, and "Help"
        for those that no group names. Hidden options and empty groups are left out."""
        left = {
            option.name: option
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and not option.hidden
        }
        names = {"To begin with": self.first(ctx), **self.purposes(ctx)}
        found = {title: [left.pop(name) for name in group if name in left] for title, group in names.items()}
        return {title: options for title, options in (*found.items(), ("Help", [*left.values()])) if options}

    def first(self, ctx: click.Context) -> tuple[str, ...]:
        """The names of the options for beginners."""
        return self._first

    def purposes(self, ctx: click.Context) -> Mapping[str, tuple[str, ...]]:
        """Heading -> names of the other options under it."""
        return GROUPS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in self.groups(ctx).items():
            rows = [row for option in options if (row := option.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl([(re.sub(r"--(\S+) / --no-\1", r"--[no-]\1", flag), text) for flag, text in rows])


class _Name(click.Choice[str]):
    """An option whose value is one of several names, written with hyphens or underscores."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = spelled(str(value))
        return super().convert(known if known in self.choices else value, param, ctx)


def click_options(*names: str) -> Callable[[Command], Command]:
    """A decorator that adds options for these common settings to a command. The command's function receives None for
    each option that is not given."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            for declarations, attributes in _options(_COMMON[name]):
                command = click.option(*declarations, **attributes)(command)
        return command

    return add


class SettingsCommand(GroupedCommand):
    """A command whose options are settings: of the common ones, and of those of the conversation that its command line
    chooses, each one whose declaration lists `verb` among its `verbs`. The command's function receives None for each
    option that is not given. A setting's former name is a hidden option."""

    def __init__(self, *arguments: Any, verb: str, protocol: str = "", **options: Any) -> None:
        """`protocol`: the name of the conversation that is taken where the command line chooses none; "": the default
        of `--protocol`."""
        super().__init__(*arguments, **options)
        self._verb, self._protocol = verb, protocol

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            spoken = _spoken(args, self._protocol)
        except SettingsError as error:
            raise click.ClickException(str(error)) from None
        ctx.meta[__name__], ctx.meta[_DASHED] = spoken, "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.removeprefix("--").removeprefix("no-").replace("-", "_")
            if others := of_others(name, spoken):
                said = f"{error.option_name} is a setting of --protocol {' and '.join(others)}, not of {spoken.name}"
                see = spoken.value.instead.get(name) or f"see {ctx.command_path} --protocol {others[0]} --help"
                raise click.ClickException(f"{said}; {see}") from None
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        fields = fields_of(self._spoken(ctx)).values()
        helped = "joining" if self._verb == "join" else "help"
        declared = [one for field in fields if self._verb in field.metadata["verbs"] for one in _options(field, helped)]
        options = [click.Option(declarations, **attributes) for declarations, attributes in declared]
        for option in options:
            if option.name == "protocol" and self._protocol:
                option.help = f"The conversation. [default: {self._protocol}]"
            elif option.name == "protocol" and self._verb == "join":
                option.help = f"{_COMMON['protocol'].metadata['help']} [default: the run's]"
        return [*options, *super().get_params(ctx)]

    def first(self, ctx: click.Context) -> tuple[str, ...]:
        own = self._spoken(ctx).value.first
        return tuple(name for place in super().first(ctx) for name in (own if place == OWN else (place,)))

    def purposes(self, ctx: click.Context) -> Mapping[str, tuple[str, ...]]:
        spoken = self._spoken(ctx)
        own = dict(spoken.value.groups)
        grouped = {name for names in (*own.values(), *GROUPS.values()) for name in names}
        own[f"Of {spoken.name}"] = tuple(name for name in fields_of(spoken) if name not in grouped)
        before = {title: names for title, names in own.items() if title not in GROUPS}
        return before | {title: (*names, *own.get(title, ())) for title, names in GROUPS.items()}

    def _spoken(self, ctx: click.Context) -> Spoken:
        chosen: Spoken = ctx.meta[__name__] if __name__ in ctx.meta else _spoken([], self._protocol)
        return chosen


def chosen_protocol() -> Spoken:
    """The conversation that the command line of the present `SettingsCommand` chooses: by ``--protocol``, or by a file
    that it names, or else the command's usual one. To be called within a command's function."""
    chosen: Spoken = click.get_current_context().meta[__name__]
    return chosen


def of_task(task: Path, arguments: Sequence[str]) -> str | None:
    """`arguments`, the words of a command line that are for the `task` itself, quoted as for a shell and joined into
    one text; None: there are none. Raises UsageError when there are words, but no ``--`` stands in the command line:
    such a word may be a mistake."""
    ctx = click.get_current_context()
    if arguments and not ctx.meta[_DASHED]:
        raise click.UsageError(f"{task}: a task's own arguments go after --: {' '.join(arguments):.80}", ctx)
    return shlex.join(arguments) if arguments else None


def _spoken(args: list[str], usual: str) -> Spoken:
    """The conversation that a command line chooses, by itself or by a file that it names, or else the `usual` one
    ("": that of all settings). Raises SettingsError for an invalid ``--protocol``. A file that cannot be read is passed
    over here; its error is raised when the command reads it."""
    said = sources(args)
    if "protocol" in said:
        try:
            return chosen(said["protocol"])
        except SettingsError as error:
            raise SettingsError(error.problem, error.name, "--protocol") from None
    for source, value in said.items():
        try:
            if (name := named_by(source, value)) is not None:
                return chosen(name)
        except (OSError, ValueError):
            continue
    return chosen(usual or PROTOCOL.default)


def _options(field: dataclasses.Field[Any], helped: str = "help") -> list[tuple[list[str], dict[str, Any]]]:
    """The arguments of click for a setting's option, and for a hidden option with its former name. `helped`: the key of
    its help in the field's metadata."""
    names = filter(None, [field.name, field.metadata["former"]])
    return [_option(field, name, field.metadata[helped], hidden=name != field.name) for name in names]


def _option(field: dataclasses.Field[Any], name: str, text: str, *, hidden: bool) -> tuple[list[str], dict[str, Any]]:
    rule, flag = field.metadata["rule"], f"--{name.replace('_', '-')}"
    if rule.kind is bool:
        text = f"{text} [default: {flag[2:]}]" if field.default else text
        return [f"{flag}/--no-{flag[2:]}", name], {"default": None, "help": text, "hidden": hidden}
    if field.default is not None:
        text += f" [default: {field.default:g}]" if rule.kind is float else f" [default: {field.default}]"
    kind = _Name(rule.choices) if rule.choices else rule.kind
    return [flag, name], {"type": kind, "default": None, "metavar": rule.metavar, "help": text, "hidden": hidden}
