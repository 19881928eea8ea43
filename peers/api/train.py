"""`samovar.train`: a run from Python, as `samovar train` makes it from a shell."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ..cli.command_line import STOPPED
from ..cli.output import Output
from ..errors import RunFailed
from ..launch.local_run import Ended, LocalRun, prepared
from ..launch.resuming import wished
from ..launch.stop_request import StopRequest
from ..run_settings.settings import aloud, silently
from ..script.loop_thread import Background
from ..script.main_script import errors_are_lines
from ..settings.in_python import in_python, python_words
from ..settings.keywords import PathText, TrainSettings
from ..training.stop import Stopped
from .result import Result
from .task_file import TaskLike, own_words, task_file


def train(
    task: TaskLike = None,
    *,
    arguments: Sequence[str] = (),
    resume: PathText | Result | None = None,
    config: PathText | None = None,
    quiet: bool = False,
    **settings: Unpack[TrainSettings],
) -> Result:
    """Train `task` with peers on this machine, which peers of other machines may join, and return the result.

    `task`: the path of a task file or of a script that calls `samovar.join`; a module; a class or namespace with the
    task's functions; None: the functions of the running script or notebook. Each peer imports the file of a module or
    of the running script; where that is the task, the call must stand under ``if __name__ == "__main__":``. Classes,
    namespaces and notebooks are sent as source, with everything of the main module that they use: functions, classes,
    imports and plain values.

    `arguments`: the words that the task or script finds in ``sys.argv``, as a list. `resume`: folder of a stopped run
    that is to go on, or its result. `config`: TOML file with settings. `quiet`: show nothing. `settings` are fields of
    `samovar.Settings` (``peers=2``, ``period=16``, ``steps=1000``); ``help(samovar.Settings)`` tells all of them. The
    call also works while an event loop runs, as one does in a notebook.

    Ctrl-C stops the run in good order: the peers of a task leave checkpoints, and Stopped is raised, whose `result` has
    the run so far (None: it had not begun). Raises TaskError, SettingsError, CheckpointError and other ValueErrors, and
    OSError, before anything starts; RunFailed when the run fails. The text of each is one line.
    """
    errors_are_lines()
    tell = silently if quiet else lambda line: aloud(python_words(line))
    read = None if config is None else Path(config)
    resume = resume.folder if isinstance(resume, Result) else resume
    before = None if resume is None else Path(resume)
    words = own_words(arguments)

    def asked() -> Collection[str]:
        return wished(settings, read, before, silently).own.asks_of_task()

    with in_python(), task_file(task, "samovar.train", asked) as file:
        run = prepared(
            file.path,
            tuple(words),
            settings,
            config=read,
            resume=before,
            command=call_text(
                "train", file.named, {"arguments": words or None, "resume": resume, **settings, "config": config}
            ),
            tell=tell,
        )
        run = replace(run, task=file.within(run.folder))
    output = Output(steps=run.steps, columns=run.columns, watched=run.watched, quiet=quiet, words=python_words)
    # Any script may make this call: for one that has the task's functions itself, the call names its file.
    named = file.named or (repr(os.fspath(file.path)) if file.text is None else "")
    again = call_text("train", named, {"resume": str(run.folder)})
    with in_python():
        ended = _until_done(run, output, again)
    return finished(ended)


def finished(ended: Ended) -> Result:
    """The result of a run that ended without failure. Raises RunFailed if the run failed or ended before its peers were
    up, and Stopped if the user stopped it; the text of Stopped names the call that resumes the run, if it has a
    checkpoint."""
    result = None if ended.result is None else Result.of(ended.result)
    if ended.wrong:
        raise RunFailed(python_words(ended.wrong), result)
    if ended.stopped:
        raise Stopped(ended.line or "stopped", STOPPED, result)
    if result is None:
        raise RunFailed("the run ended before its peers were up")
    return result


def call_text(function: str, task: str, options: Mapping[str, Any]) -> str:
    """The call of a function of samovar as text: samovar.train('digits.py', peers=2). Options that are None are left
    out, and so is `run`, the folder."""
    told = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in options.items()}
    given = [f"{key}={value!r}" for key, value in told.items() if value is not None and key != "run"]
    return f"samovar.{function}({', '.join(filter(None, [task, *given]))})"


def _until_done(run: LocalRun, output: Output, again: str) -> Ended:
    """Train on an event loop in a thread of its own, because this thread may have a running one. Ctrl-C stops the
    run."""
    background, stop = Background(), StopRequest()
    try:
        started = background.start(run.train(output, stop, again))
        while True:
            try:
                return started.result()
            except KeyboardInterrupt:
                background.soon(stop.set)
    finally:
        background.close()
