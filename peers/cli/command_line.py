"""The command line. A command's module is imported when the command is used, because PyTorch takes seconds to
import."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from ..machine.spinning import spinning
from ..machine.workspaces import UNKEPT

STOPPED = 130
"""The exit code after Ctrl-C, as in a shell."""


class Verb(NamedTuple):
    """A command. `module`: its module, which has a function of the command's name; `help`: its help, one line; `light`:
    the module does without PyTorch."""

    module: str
    help: str
    light: bool = False


_COMPLETION: Final = "_SAMOVAR_COMPLETE"
"""The variable by which a shell asks for completions, after the program's name."""
_COMMAND: Final = re.compile(r"samovar (?:--|[a-z]+ ).*")


def fail(line: str) -> int:
    """Print ``samovar: `` and the error `line` on stderr; a terminal shows it broken between words. Returns the exit
    code of an error, 2."""
    click.echo(between_words(f"samovar: {line}", sys.stderr), err=True)
    return 2


def between_words(line: str, stream: TextIO, indent: int = 0) -> str:
    """`line` as it is to be printed on `stream`. A terminal would break a long line within a word, so for a terminal it
    is broken between words, and each further line begins with `indent` spaces. A command at the end of the line stays
    in one piece, so that it can be copied."""
    if not stream.isatty():
        return line
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line)
    lines = textwrap.wrap(
        whole, columns_of(stream), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")


def columns_of(stream: TextIO) -> int:
    """The width, in columns, of the terminal that shows `stream`, which need not be that of stdout; if the variable
    COLUMNS is set, its value."""
    with contextlib.suppress(OSError, ValueError):
        if "COLUMNS" not in os.environ:
            return os.get_terminal_size(stream.fileno()).columns
    return shutil.get_terminal_size().columns


class CommandLine(click.Group):
    """The group of all commands. A usage error is printed as one line with a suggestion."""

    def __init__(self, *arguments: Any, verbs: Mapping[str, Verb], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in self._verbs:
            raise click.exceptions.NoSuchCommand(cmd_name, possibilities=self._verbs, ctx=ctx)
        os.environ.update(spinning(os.environ))  # for a peer in this process, and for those of its children
        verb = self._verbs[cmd_name]
        loading = contextlib.nullcontext() if verb.light else meanwhile("loading PyTorch ...", sys.stderr)
        try:
            with loading:
                command: click.Command = getattr(import_module(verb.module), cmd_name)
        except Exception as error:
            if (library := _failed_in(error)) is None:
                raise
            raise click.ClickException(_cannot_import(library, error)) from error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The name and the command with which `args` begin, and the words that follow. While a shell asks for
        completions, the command is made from the completion table where that has it, so that the command's module is
        not imported. Raises MissingParameter, by that table too, when no word follows the name of a command that needs
        one."""
        if args[0] in self._verbs and (ctx.resilient_parsing or not args[1:]):
            completion = import_module(".completion", __package__)  # by name: other command lines need no table
            if (sketch := completion.known(args[0], args[1:])) is not None:
                if ctx.resilient_parsing:
                    return args[0], sketch, args[1:]
                sketch.make_context(args[0], [], parent=ctx)
        if "--edge" in args:  # before PyTorch is imported
            os.environ.update({**UNKEPT, **os.environ})  # the user's own value wins
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin with `incomplete`. No command's module is imported for its name."""
        named = [
            CompletionItem(name, help=verb.help) for name, verb in self._verbs.items() if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self._verbs.items()])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        try:
            code = super().main(args, prog_name, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            code = fail(_usage_line(error))
        except (click.Abort, KeyboardInterrupt):  # the second comes while a shell completes a command line
            code = STOPPED
            if _COMPLETION not in os.environ:
                fail("stopped")
        sys.exit(code)


@contextlib.contextmanager
def meanwhile(told: str, stream: TextIO) -> Iterator[None]:
    """A context in which a terminal shows the text `told`, for work that may take seconds; the text is erased at its
    end. Nothing is shown with ``--quiet``, where `stream` is no terminal or TERM is "dumb", and while a shell completes
    a command line, because its terminal shows that line."""
    silent = "--quiet" in sys.argv or os.environ.get("TERM") == "dumb" or _COMPLETION in os.environ
    if silent or not stream.isatty():
        yield
        return
    stream.write(told)
    stream.flush()
    try:
        yield
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _failed_in(error: Exception) -> str | None:
    """The other library during whose import `error` was raised; None: it was raised by this library."""
    frames = (str(frame.f_globals.get("__package__") or "") for frame, _ in traceback.walk_tb(error.__traceback__))
    libraries = [name.partition(".")[0] for name in frames if not name.startswith("importlib")]
    own = __name__.partition(".")[0]
    return libraries[-1] if libraries and libraries[-1] not in ("", own) else None


def _cannot_import(library: str, error: Exception) -> str:
    why = ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    few = f"; this process may have {limit / 1e6:,.0f} MB of addresses (ulimit -v), and PyTorch takes some GB"
    return f"{library} cannot be imported: {why}" + ("" if limit == resource.RLIM_INFINITY else few)


def _usage_line(error: click.ClickException) -> str:
    near, context = getattr(error, "possibilities", None), getattr(error, "ctx", None)
    said = " ".join((error.message if near else error.format_message()).split()).rstrip(".")
    hint = f"did you mean {near[0]}?" if near else f"see {context.command_path} --help" if context else ""
    hands_on = context and any(parameter.name == "arguments" for parameter in context.command.params)
    other = " (options of the task itself go after --)" if hands_on and isinstance(error, click.NoSuchOption) else ""
    return "; ".join(filter(None, [said[:1].lower() + said[1:], hint])) + other
