"""``samovar join``: take part, from this machine, in a run that was started elsewhere."""

from __future__ import annotations

import asyncio
import os.path
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from ..errors import one_line
from ..launch.join_target import Door, open_at, own_name
from ..launch.process import run_peer
from ..launch.run_folder import conclude
from ..machine.open_files import raise_file_limit
from ..records.records import Record
from ..settings.fields import SettingsError
from ..settings.settings import Settings, aloud, silently
from ..task.task import TaskError, kind_of
from ..training.stop import Stop
from .command_line import STOPPED, fail
from .flags import GroupedCommand, click_options
from .output import Output, prints_aside, run_options, run_verb

_FLAGS = (
    "device",
    "threads",
    "memory_limit",
    "patience_s",
    "give_up_after_s",
    "listen",
    "advertise",
    "run",
    "checkpoint_every_s",
    "link",
    "site",
    "report",
    "key",
)


@click.command(cls=GroupedCommand, first=("invite", "name", "device", "run"))
@click.argument("address")
@click.argument("task", type=click.Path(path_type=Path))
@click.option(
    "--invite",
    metavar="TEXT|FILE|-",
    envvar="SAMOVAR_INVITE",
    help="What `samovar train` printed, its file, or -: stdin.",
)
@click.option("--peer-key", metavar="KEY", help="Public key of the peer at ADDRESS, with --key.")
@click.option("--insecure", is_flag=True, help="The run was started with --insecure.")
@click.option("--name", metavar="NAME", help="Name in the run. [default: this machine's]")
@click_options(*_FLAGS)
@run_options
def join(
    address: str,
    task: Path,
    invite: str | None,
    peer_key: str | None,
    insecure: bool,
    name: str | None,
    config: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> None:
    """Join the run at ADDRESS with TASK, the same file as there.

    Period, steps, seed and protocol are the run's; only what concerns this machine is set here. Others on this machine
    can see an invite in the list of processes, but not one in a file, on stdin or in the variable SAMOVAR_INVITE.
    """

    def work() -> int:
        if kind_of(task) != "task":
            raise TaskError(f"{task}: a training script joins by itself: samovar.join({address!r}, invite=...)")
        settings = replace(Settings.read(config, flags, silently if quiet else aloud), insecure=insecure)
        door = Door.of(address, _read_invite(invite), peer_key, settings)
        raise_file_limit()
        return asyncio.run(_join(door, task, settings, own_name(name), as_json, quiet))

    run_verb(work)


def _read_invite(said: str | None) -> str | None:
    """The text of the invite. Raises SettingsError when the file that holds it cannot be read."""
    if said == "-":
        return sys.stdin.readline().strip()
    if said is None or not os.path.isfile(said):  # isfile accepts a text of any length
        return said
    try:
        return Path(said).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{said}: cannot be read: {one_line(error)}", "invite", "--invite") from None


async def _join(door: Door, task: Path, settings: Settings, name: str, as_json: bool, quiet: bool) -> int:
    began, stop = time.monotonic(), Stop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    opening = await stop.unless(lambda: open_at(door, settings, stop, name=name, task=task))
    if opening is None:
        return STOPPED
    output, folder = Output(steps=opening.settings.steps, as_json=as_json, quiet=quiet), Path(opening.orders.folder)
    file, record = opening.recorder()

    def tell(what: Record) -> None:
        record(what)
        output.put(what)

    with output, file, prints_aside(as_json):
        if opening.settings.site is not None and opening.settings.site_period is None:
            output.say("--site does nothing: this run was started without --site-period")
        ended = await run_peer(opening, tell)
    result = conclude(
        folder,
        output.heard,
        wall_s=time.monotonic() - began,
        accuracy=ended.accuracy,
        report=settings.report,
    )
    unwritten = output.end(result)
    if wrong := ended.unsaved or unwritten:
        return fail(wrong)
    if not ended.finished:
        output.say("stopped: this peer has left the run")
    return 0 if ended.finished else STOPPED
