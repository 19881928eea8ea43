"""`samovar.simulate` and `samovar.sweep`: simulations from Python, as `samovar simulate` makes them from a shell."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, Unpack

import torch

from ..peers.api.result import Result
from ..peers.api.task_file import (
    TaskFile,
    TaskLike,
    main_is_task,
    own_words,
    refuse_unguarded,
    refuse_within_import,
    task_file,
)
from ..peers.api.train import call_text
from ..peers.cli.command_line import STOPPED
from ..peers.cli.output import Output
from ..peers.errors import RunFailed
from ..peers.records.records import Record
from ..peers.run_settings.settings import Settings, aloud, silently
from ..peers.script.main_script import errors_are_lines
from ..peers.settings.fields import SettingsError
from ..peers.settings.in_python import in_python, python_words
from ..peers.settings.keywords import PathText, SimulateSettings
from ..peers.settings.validators import shown
from ..peers.task.rng import lent
from ..peers.training.stop import Stopped
from .run import IN_GROUPS, Play, play, play_of_scenario, play_of_task
from .scenarios.file import read_scenario
from .sweeps.show import Sweep, swept

T = TypeVar("T")
SEEDS_MAX = 1_000_000


class _Interruptible(Output):
    """An output for a run in another thread. Once `interrupted` is set, the next record ends the run by
    KeyboardInterrupt."""

    interrupted = False

    def put(self, record: Record) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        super().put(record)


def simulate(
    task: TaskLike = None,
    *,
    scenario: PathText | None = None,
    config: PathText | None = None,
    arguments: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[SimulateSettings],
) -> Result:
    """Train `task` with many peers in virtual time, in this process, and return the result.

    `task`: the path of a task file, but not of a script; a module; a class or namespace with the task's functions;
    None: the task that `scenario` names, else the functions of the running script or notebook. `scenario`: TOML file
    with peers, links and faults, and perhaps a task, which `task` replaces; where there is no task at all, a toy task
    is trained, and a line says so. With a scenario promises are checked, and `result.broken` names the first that did
    not hold (None: all held). `config`: TOML file with settings. `arguments`: the words that the task finds in
    ``sys.argv``, as a list. `quiet`: show nothing. `settings` are fields of `samovar.Settings` (``peers=64``,
    ``link="10mbit,40ms"``). A scenario's file gives `config`, `peers`, `link`, `site` and `step_time` itself: given
    beside it they are refused by a SettingsError. The same seed gives the same run, to the last bit; `result.digest` is
    then equal. The caller's random generators are not changed.

    Raises TaskError, SettingsError and other ValueErrors before anything starts; then the errors of the task and,
    without a scenario, those of a peer; RunFailed when the result cannot be written; Stopped on Ctrl-C.
    """
    errors_are_lines()
    tell = silently if quiet else lambda line: aloud(python_words(line))
    own, words = None if config is None else Path(config), own_words(arguments)

    def asked() -> Collection[str]:
        return () if scenario is not None else Settings.read(own, settings, silently).own.asks_of_task()

    given = {**settings, "arguments": shlex.join(words) or None}

    def names_own() -> bool:
        return scenario is not None and read_scenario(Path(scenario), given, silently).task is not None

    with in_python(), _wished(task, scenario, asked, names_own) as file, _left_alone():
        named = "" if file is None else file.named
        options = {"arguments": words or None, **settings, "scenario": scenario, "config": config}
        command = call_text("simulate", named, options)
        path = None if file is None else file.path
        if scenario is not None:
            if twice := [name for name in IN_GROUPS if {**settings, "config": config}.get(name) is not None]:
                raise SettingsError(f"scenario says it in the file: leave out {twice[0]}")
            wished = play_of_scenario(Path(scenario), path, given, tell, command)
        else:
            assert path is not None
            read = Settings.read(own, {"device": "cpu", **given}, tell)
            wished = play_of_task(path, read, command)
        if file is not None:
            wished = replace(wished, task=replace(wished.task, path=file.within(wished.folder)))
        return _played(wished, quiet=quiet)


def sweep(
    count: int, *, protocol: str | None = None, seed: int = 0, minimise: bool = False, quiet: bool = False
) -> Sweep:
    """Draw `count` scenarios (1 to 1,000,000), with the seeds from `seed` on, and simulate each, in processes on all
    cores of this machine. Returns a `Sweep`, whose `failures` have one `Failure` for each seed that broke a
    promise. `protocol`: the conversation of all of them; None: they are divided among the registered ones. `minimise`:
    for the first failure of each promise, write the smallest scenario found that breaks it to ``minimal-SEED.toml`` in
    the working folder, but for the promise that a seed repeats its run. `quiet`: show no progress. In a script the call
    must stand under ``if __name__ == "__main__":``. Raises SettingsError, TaskError for a script without that, and
    Stopped on Ctrl-C."""
    errors_are_lines()
    if type(count) is not int or not 1 <= count <= SEEDS_MAX:
        raise SettingsError(f"must be a whole number from 1 to {SEEDS_MAX}, got {shown(count)}", "count")
    refuse_within_import("samovar.sweep")
    refuse_unguarded("samovar.sweep")
    with in_python():
        settings = Settings.read(None, {"seed": seed, "protocol": protocol})
        Settings(seed=seed + count - 1)  # the last one must be a seed too
        chosen = None if protocol is None else settings.protocol.text
        # Never in this process, whose event loop may be running.
        workers = max(2, min(count, os.cpu_count() or 1))
        try:
            return swept(seed, count, chosen, smallest=minimise, quiet=quiet, workers=workers)
        except KeyboardInterrupt:
            if not quiet:
                aloud("stopped")  # Python ends a script without the exception's text
            raise Stopped("stopped", STOPPED) from None


@contextmanager
def _wished(
    task: TaskLike, scenario: PathText | None, asked: Callable[[], Collection[str]], names_own: Callable[[], bool]
) -> Iterator[TaskFile | None]:
    """The task as a file. None: no task is given, and the scenario names one (`names_own`), or is of the toy task, as
    the running script has none either. `asked`: as for `task_file`."""
    if task is None and scenario is not None and (not main_is_task() or names_own()):
        yield None
    else:
        with task_file(task, "samovar.simulate", asked) as file:
            yield file


@contextmanager
def _left_alone() -> Iterator[None]:
    """A context after which this process's random generators and PyTorch's threads are as they were."""
    threads = torch.get_num_threads()
    try:
        with lent():
            yield
    finally:
        torch.set_num_threads(threads)


def _played(wished: Play, *, quiet: bool) -> Result:
    output = _Interruptible(
        steps=wished.steps, columns=wished.columns, watched=wished.watched, quiet=quiet, words=python_words
    )
    settings = wished.scenario.settings
    if not wished.judged and (idle := settings.own.idle_here(settings)):
        output.say(idle)
    try:
        written, last = _beside_a_loop(lambda: play(wished, output), output)
    except KeyboardInterrupt:
        raise Stopped(f"stopped; as far as it came: samovar report {wished.folder}", STOPPED) from None
    unwritten, result = output.end(written), Result.of(written)
    if result.broken is not None:
        output.say("\n".join(("the last events:", *last, f"broken promise: {result.broken}")))
    if unwritten:
        raise RunFailed(unwritten, result)
    return result


def _beside_a_loop(work: Callable[[], T], output: _Interruptible) -> T:
    """Do the work, in another thread if an event loop runs in this one, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, "samovar") as thread:
        done = thread.submit(work)
        while True:
            try:
                return done.result()
            except KeyboardInterrupt:
                if done.done():
                    raise
                output.interrupted = True
