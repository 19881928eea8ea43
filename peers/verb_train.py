"""``samovar train``: spawn peers on this machine and train a task, or run a training script, with them."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace
from pathlib import Path

import click

from .checkpoint import CheckpointError
from .keys import Invite
from .launch import Launch, LaunchError, peer_command
from .orders import checkpoint_path, founding_orders
from .output import Output, fail, run_verb
from .records import Lost, PeerSummary, Result
from .runs import SETTINGS_FILE, conclude, make_folder
from .settings import Settings, click_options
from .task import kind_of

_FLAGS = (
    "peers", "protocol", "schedule", "period", "period_initial", "period_block_s", "steps", "seed", "device",
    "threads", "patience_s", "quorum", "listen", "advertise", "insecure", "key", "authorized", "run",
    "evaluate_every", "checkpoint_every_s", "report",
)  # fmt: skip


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("task", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1)
@click_options(*_FLAGS)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings from a TOML file.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a stopped run's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
def train(
    task: Path,
    arguments: tuple[str, ...],
    config: Path | None,
    resume: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> None:
    """Train TASK with peers on this machine; others may join.

    TASK is a Python file with model(), data(part, parts) and loss(model, batch), or a training script of yours that
    calls samovar.join(); ARGUMENTS are handed on to a script (after --).
    """

    def work() -> int:
        script = kind_of(task) == "script"
        if resume is not None:
            settings = _resumed(resume, flags)
            folder = resume
        else:
            settings = Settings.read(config, flags)
            folder = make_folder(settings.run, task)
        (folder / SETTINGS_FILE).write_text(settings.to_json() + "\n", encoding="utf-8")
        all_orders, invite = founding_orders(task, settings, folder, resume=resume is not None and not script)
        output = Output(steps=settings.steps, as_json=as_json, quiet=quiet)
        command = peer_command(task, script, arguments)
        return asyncio.run(_train(Launch(all_orders, command, output.take), output, settings, folder, task, invite))

    run_verb(work)


def _resumed(folder: Path, flags: dict[str, object]) -> Settings:
    file = folder / SETTINGS_FILE
    if not file.is_file():
        raise CheckpointError(f"{folder}: nothing to resume, it has no {SETTINGS_FILE}")
    settings = Settings.from_json(file.read_text(encoding="utf-8"))
    missing = [name for name in map(str, range(settings.peers)) if not checkpoint_path(folder, name).exists()]
    if missing:
        raise CheckpointError(f"{folder}: nothing to resume, no checkpoint of peer {', '.join(missing)}")
    return replace(settings, **{key: value for key, value in flags.items() if value is not None})  # type: ignore[arg-type]


async def _train(
    launch: Launch, output: Output, settings: Settings, folder: Path, task: Path, invite: Invite | None
) -> int:
    began, stop = time.monotonic(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def met(member: dict[str, str]) -> None:
        how = f"--invite {invite.to_text()}" if invite else f"--insecure --peer-key {member['id']}"
        output.say(f"join from anywhere: samovar join {member['address']} {task} {how}")

    error: str | None = None
    with output:
        try:
            await launch.run(stop, met)
        except LaunchError as failure:
            error = str(failure)
    if error is not None:
        return fail(error)
    if launch.met:
        output.end(_conclude(launch, folder, time.monotonic() - began, settings))
    if stop.is_set():
        output.say(f"stopped; go on with: samovar train {task} --resume {folder}")
        return 130
    return 0


def _conclude(launch: Launch, folder: Path, wall_s: float, settings: Settings) -> Result:
    ended = [peer.ended for peer in launch.peers if peer.ended is not None]
    accuracies = [end["accuracy"] for end in ended if end["accuracy"] is not None]
    summaries = [PeerSummary(**end["summary"]) for end in ended]
    killed = [
        Lost(peer=peer.orders.name, when=wall_s, why=f"killed by signal {-peer.exit_code}")
        for peer in launch.peers
        if peer.ended is None and peer.exit_code is not None and peer.exit_code < 0
    ]
    return conclude(
        folder,
        summaries,
        wall_s=wall_s,
        accuracy=accuracies[-1] if accuracies else None,
        lost=killed,
        report=settings.report,
    )
