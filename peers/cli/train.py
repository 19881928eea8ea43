"""``samovar train``: spawn peers on this machine and train a task, or run a training script, with them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from ..launch.local_run import Ended, LocalRun, prepared
from ..launch.stop_request import StopRequest
from ..run_settings.settings import aloud, silently
from ..task.task import kind_of
from .command_line import STOPPED, fail
from .flags import OWN, SettingsCommand, of_task
from .output import Output, exits, run_options


@click.command(cls=SettingsCommand, verb="train", first=("peers", "steps", OWN, "device", "run", "resume"))
@click.argument("task", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1)
@click.option("--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a stopped run's folder.")
@run_options
@exits
def train(
    task: Path,
    arguments: tuple[str, ...],
    config: Path | None,
    resume: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> int:
    """Train TASK with peers on this machine; others may join.

    TASK is a Python file with model(), data(part, parts) and loss(model, batch), or a training script of yours that
    calls samovar.join(). ARGUMENTS, after --, are the task's or script's own, as in sys.argv.
    """
    if kind_of(task) == "task":
        of_task(task, arguments)
    run = prepared(task, arguments, flags, config=config, resume=resume, tell=silently if quiet else aloud)
    output = Output(steps=run.steps, columns=run.columns, watched=run.watched, as_json=as_json, quiet=quiet)
    return trained(run, output, "train")


def trained(run: LocalRun, output: Output, verb: str) -> int:
    """Train until the run ends or a signal stops it. Returns the exit code: 0, 2 for a failure, 130 for a stop. `verb`:
    the command that resumes the run, "train" or "serve"."""
    ended = asyncio.run(_until_signalled(run, output, verb))
    code = fail(ended.wrong) if ended.wrong else 0
    return STOPPED if ended.stopped else code


async def _until_signalled(run: LocalRun, output: Output, verb: str) -> Ended:
    stop = StopRequest()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await run.train(output, stop, f"samovar {verb} {run.task} --resume {run.folder}")
