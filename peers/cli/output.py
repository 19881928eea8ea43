"""The output of a command: progress while it runs, then a table or one JSON object. An error is one line, with exit
code 2."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self

import click

from ..errors import is_plain, one_line, users_line
from ..launch.run_folder import keep_result
from ..reasons import reason
from ..records.columns import Columns
from ..records.records import Record
from ..records.result import PeerSummary, Result
from ..records.tally import Tally
from ..user_code import quits
from .command_line import STOPPED, between_words, fail
from .flags import Command
from .progress import Progress

P = ParamSpec("P")


def exits(command: Callable[P, int]) -> Callable[P, None]:
    """A decorator for a command's function. The command then exits with the code that the function returns, and after
    Ctrl-C with 130. An error is printed as one line, with exit code 2; an error of click is left to `CommandLine`,
    which prints it so. A traceback is printed only for a defect of this library."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            code = command(*arguments, **options)
        except click.ClickException:
            raise
        except KeyboardInterrupt:
            fail("stopped")
            code = STOPPED
        except SystemExit as error:  # of a task's function, in a simulation
            code = fail(": ".join(filter(None, [users_line(error), quits(error)])))
        except Exception as error:
            if not is_plain(error) and users_line(error) is None:
                traceback.print_exc()
            code = fail(one_line(error))
        sys.exit(code)

    return run


def run_options(command: Command) -> Command:
    """A decorator that adds the options of every command that makes a run: --config, --json and --quiet."""
    config = click.Path(path_type=Path)
    for option in (
        click.option("--quiet", is_flag=True, help="Print nothing but errors and --json's result."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on stdout."),
        click.option("--config", type=config, metavar="FILE", help="Settings from a TOML file."),
    ):
        command = option(command)
    return command


def prints_aside(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """While in this context, if stdout is for JSON, `print` in this process, such as a task's, writes to stderr."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


class Output:
    """The output of one run. It takes the run's records one by one, and then the result. `heard`: totals of the records
    that it has taken."""

    def __init__(
        self,
        *,
        steps: int,
        columns: Columns,
        watched: str = "",
        as_json: bool = False,
        quiet: bool = False,
        words: Callable[[str], str] = str,
    ) -> None:
        """`steps`: local steps of each peer, 0: unknown. `columns`: name -> title of the conversation's columns.
        `watched`: the metric whose value ends the run, "": none does. `as_json`: print the result as JSON. `quiet`:
        show no progress and no table. `words`: rewords each line that `say` prints, e.g. for a user of Python, who
        knows no flags."""
        self._as_json, self._quiet, self._words = as_json, quiet, words
        self.heard = Tally()
        self._progress = Progress(steps=steps, columns=columns, quiet=quiet, json=as_json)
        self._progress.watches(watched)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def joins(self) -> None:
        """Note that the run began elsewhere, and this process's peer joins it: until its first exchange the progress
        says so."""
        self._progress.joins()

    def gathers(self, here: str) -> None:
        """Note how many peers have come (`here`, as text: "2 of 4 peers") of those for which the run waits before it
        begins."""
        self._progress.gathers(here)

    def goes_on(self, recorded_s: float, before: Iterable[PeerSummary]) -> None:
        """Note that the run is resumed, if it has records. `recorded_s`: the time of the last one, in seconds since the
        run began; 0: there is none. `before`: the totals of its peers so far."""
        self._progress.goes_on(recorded_s, before)

    def put(self, record: Record) -> None:
        """Take a record of any peer: count it, and show it."""
        self.heard.update(record)
        self._progress.update(record)

    def say(self, line: str) -> None:
        """Print a line for the user, on stderr if stdout is for JSON; nothing with --quiet."""
        if not self._quiet:
            with contextlib.suppress(OSError):  # the reader has gone
                if not self._progress.say(self._words(line)):
                    stream = sys.stderr if self._as_json else sys.stdout
                    click.echo(between_words(self._words(line), stream), file=stream)

    def tells(self, why: str) -> None:
        """Note that the caller prints `why`. Events that end a peer for a reason in `why` are then printed without
        it."""
        self._progress.tells(why)

    def end(self, result: Result) -> str:
        """Write the result to the run's folder, and print it as a JSON object or, without --quiet, as a table with the
        report's path. Returns the reason if the result could not be written, else ""."""
        unwritten = ""
        try:
            keep_result(result, self.heard)
        except ModuleNotFoundError as missing:
            self.say(f"no report: {missing}")
            result = replace(result, report=None)
        except (OSError, ValueError) as error:
            unwritten = f"{result.run}: not all of the result could be written: {reason(error)}"
            result = replace(result, report=None)
        self._progress.ended(result)
        if self._as_json:
            click.echo(result.to_json())
        elif not self._quiet and self._progress.mode != "notebook":  # there the result shows itself
            from rich.console import Console  # imported here, as in `progress`

            from .final_table import final_table

            Console(width=None if sys.stdout.isatty() else 200).print(final_table(result))
            self.say(f"report: {result.report}" if result.report else f"records: {result.run}")
        return unwritten
