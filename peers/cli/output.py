"""The output of a command: progress while it runs, then a table or one JSON object. Errors are one line, exit code
2."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from rich.console import Console

from ..errors import is_plain, one_line, users_line
from ..launch.run_folder import keep_result
from ..records.records import Record, Result, read_record
from ..records.tally import Tally
from .command_line import fail
from .flags import Command
from .progress import Progress, final_table


def run_verb(work: Callable[[], int]) -> None:
    """Run a command's work and exit with its code. An error that the user can mend is one line, exit code 2; only a
    defect of this library shows a traceback."""
    try:
        code = work()
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if not is_plain(error) and users_line(error) is None:
            traceback.print_exc()
        code = fail(one_line(error))
    sys.exit(code)


def run_options(command: Command) -> Command:
    """The options of every command that makes a run: the source of settings, and the output."""
    config = click.Path(path_type=Path)
    for option in (
        click.option("--quiet", is_flag=True, help="Print nothing but errors and --json's result."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on stdout."),
        click.option("--config", type=config, metavar="FILE", help="Settings from a TOML file."),
    ):
        command = option(command)
    return command


def prints_aside(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Redirect a task's prints in this process to stderr while stdout is for JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


class Output:
    """The output of one run, record by record. `say` prints a line that belongs to no record."""

    def __init__(self, *, steps: int, as_json: bool, quiet: bool) -> None:
        self._as_json, self._quiet = as_json, quiet
        self.heard = Tally()
        self._progress = Progress(steps=steps, quiet=quiet, json=as_json)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def take(self, line: str) -> None:
        """Take a record as JSON text."""
        self.put(read_record(line))

    def put(self, record: Record) -> None:
        self.heard.update(record)
        self._progress.update(record)

    def say(self, line: str) -> None:
        """Print a line for people, on stderr when stdout is for JSON."""
        if not self._quiet:
            with contextlib.suppress(OSError):  # the reader has gone
                if not self._progress.say(line):
                    click.echo(line, err=self._as_json)

    def end(self, result: Result) -> str:
        """Print the result, as a JSON object or a table with the report's path, and write it to the run's folder.
        Returns why the writing failed; empty: it did not."""
        unwritten = ""
        try:
            keep_result(result, self.heard)
        except ModuleNotFoundError as missing:
            self.say(f"no report: {missing}")
            result = replace(result, report=None)
        except (OSError, ValueError) as error:
            unwritten = f"{result.run}: not all of the result could be written: {one_line(error)}"
            result = replace(result, report=None)
        if self._as_json:
            click.echo(result.to_json())
        elif not self._quiet:
            Console(width=None if sys.stdout.isatty() else 200).print(final_table(result))
            self.say(f"report: {result.report}" if result.report else f"records: {result.run}")
        return unwritten
