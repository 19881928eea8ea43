"""``samovar train``: spawn peers on this machine and train a task, or run a training script, with them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from ...protocols.addresses import split_address
from ...protocols.conversation import End
from ..checkpoints.checkpoint import CheckpointError
from ..conversations.registry import conversation
from ..launch.launcher import Launch, LaunchError, script_command
from ..launch.run_folder import SETTINGS_FILE, conclude, keep_settings, kept, make_folder, spent_s
from ..launch.run_socket import answered
from ..launch.spec import checkpoint_path, founding_orders, log_path
from ..launch.ways_in import WaysIn
from ..records.result import Lost, Result
from ..settings.settings import Settings, Tell, aloud, of_tasks, silently
from ..task.task import TaskError, check_trainable, kind_of
from ..training.devices import check_devices
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
    script = kind_of(task) == "script"
    flags["arguments"] = None if script else of_task(task, arguments)
    if resume is not None and script:
        raise TaskError(f"{task}: a script keeps its own checkpoints, --resume is for tasks")
    if script and (idle := of_tasks(flags)):
        raise TaskError(f"{task}: a training script decides that itself: leave out --{idle.replace('_', '-')}")
    tell = silently if quiet else aloud
    if resume is not None:
        settings = _resumed(resume, config, flags, tell)
        folder = resume
    else:
        settings = Settings.read(config, flags, tell)
        if script and (why := settings.own.tasks_only()):
            raise TaskError(f"{task}: {why}")
        if not script:
            check_trainable(task, settings.own.scripts_only())
            check_devices(settings.device, settings.peers)
        folder = make_folder(settings.run, task)
    all_orders, invite = founding_orders(task, settings, folder, resume=resume is not None)
    spoken = conversation(settings)
    steps = 0 if script else settings.steps_max or 0
    output = Output(steps=steps, columns=spoken.columns, as_json=as_json, quiet=quiet)
    command = script_command(task, arguments) if script else None
    launch = Launch(all_orders, settings, command, output.put, ends_together=spoken.ends_together)

    protocol, own = settings.protocol.file, settings.arguments
    ways_in = WaysIn(task, folder, invite, launch.reinvite, script=script, protocol=protocol, arguments=own)

    def met(members: list[dict[str, str]]) -> None:
        if resume is not None:
            keep_settings(folder, settings)  # not before all peers could go on with them
        local = split_address(members[0]["address"])[0].startswith("127.")
        unwritten = ways_in.met(members)
        output.say(f"join from {'this' if local else 'another'} machine: {ways_in.lines[0]}")
        if unwritten:
            output.say(unwritten)
        if idle := settings.own.idle_sites(settings):
            output.say(f"until others join from elsewhere: {idle}" if not settings.own.sites_need() else idle)
        if script:
            output.say(f"what the script prints goes to {log_path(folder, 'N')}, for each peer N")

    with kept(folder):
        if resume is None:
            keep_settings(folder, settings)
        again = "" if script else f"samovar train {task} --resume {folder}"
        code = asyncio.run(_train(launch, output, settings, folder, met, again, ways_in))
    if code == STOPPED:
        resumable = not script and _has_checkpoint(folder, settings.peers)
        output.say(f"stopped; go on with: {again}" if resumable else "stopped")
    elif code == 0 and resume is not None and not launch.going:
        output.say(_over_before(_end(launch), settings))
    return code


def _resumed(folder: Path, config: Path | None, flags: dict[str, object], tell: Tell) -> Settings:
    if config is not None or flags["run"] is not None:
        other = "--run" if config is None else "--config"
        raise CheckpointError(f"{folder}: a run is resumed where it is and as it was set: leave out {other}")
    file = folder / SETTINGS_FILE
    if not folder.exists():
        raise CheckpointError(f"{folder}: nothing to resume, there is no such folder")
    if not file.is_file():
        raise CheckpointError(f"{folder}: nothing to resume, it has no {SETTINGS_FILE}")
    settings = Settings.from_json(file.read_text(encoding="utf-8"), lambda line: tell(f"{file}: {line}"))
    if not _has_checkpoint(folder, settings.peers):
        raise CheckpointError(f"{folder}: nothing to resume, it has no checkpoint of any peer")
    if flags["peers"] not in (None, settings.peers):
        raise CheckpointError(
            f"{folder}: it has {settings.peers} peers, and is resumed with as many: leave out --peers"
        )
    if flags["arguments"] not in (None, settings.arguments):
        own = f"{settings.arguments!r:.80}"
        raise CheckpointError(f"{folder}: its task has the arguments {own}, and is resumed with them: leave out yours")
    return settings.with_flags(flags, tell)


def _has_checkpoint(folder: Path, peers: int) -> bool:
    return any(checkpoint_path(folder, str(index)).exists() for index in range(peers))


async def _train(
    launch: Launch,
    output: Output,
    settings: Settings,
    folder: Path,
    met: Callable[[list[dict[str, str]]], None],
    again: str,
    ways_in: WaysIn,
) -> int:
    before_s, began, stop = spent_s(folder), time.monotonic(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    error: str | None = None
    async with answered(folder, ways_in.answer, output.say):
        with output:
            try:
                await launch.run(stop, met)
            except LaunchError as failure:
                error = str(failure)
    if error is not None:
        saved = output.heard.saved
        return fail(f"{error}; {output.heard.noun} {saved} is saved, go on with: {again}" if saved and again else error)
    wrong = [f"peer {peer.name}: {why}" for peer in launch.peers if (why := (peer.ended or {}).get("unsaved"))][:1]
    if launch.met:
        wrong += filter(None, [output.end(_conclude(launch, output, folder, settings, before_s, began))])
        for peer in launch.peers:
            if forgot := (peer.ended or {}).get("forgot"):
                output.say(f"peer {peer.name}: {forgot}")
    code = fail("; ".join(wrong)) if wrong else 0
    return STOPPED if stop.is_set() else code


def _over_before(end: End | None, settings: Settings) -> str:
    """The line for a run that was resumed and had nothing to do any more."""
    if end is None or end.by == "steps":
        return f"all {settings.steps_max or 0:,} steps were taken before; for more give --steps"
    return f"the run was over before: {end.why}; for more give another --{end.by.replace('_', '-')}"


def _end(launch: Launch) -> End | None:
    """Why the run is over, as its peers tell; None: they do not."""
    told = [end for peer in launch.peers if (end := (peer.ended or {}).get("end"))]
    return End(**told[0]) if told else None


def _conclude(
    launch: Launch, output: Output, folder: Path, settings: Settings, before_s: float, began: float
) -> Result:
    ended = [peer.ended for peer in launch.peers if peer.ended is not None]
    metrics = [end["metrics"] for end in ended if end["metrics"]]
    failed = [
        Lost(
            peer=peer.orders.name,
            when=before_s + peer.exited_s,
            why=peer.killed if peer.exit_code < 0 else peer.failure,
        )
        for peer in launch.peers
        if peer.exit_code and not (peer.ended or {}).get("finished")
    ]
    return conclude(
        folder,
        output.heard,
        wall_s=before_s + time.monotonic() - began,
        metrics=metrics[-1] if metrics else None,
        end=_end(launch),
        lost=failed,
        report=settings.report,
    )
