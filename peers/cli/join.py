"""``samovar join``: joins a run that was started elsewhere, with a peer on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from ..conversations.registry import conversation
from ..errors import one_line
from ..launch.join_target import JoinTarget, open_at, own_name
from ..launch.launcher import script_command
from ..launch.process import run_peer
from ..launch.run_folder import conclude, spent
from ..launch.run_socket import answered
from ..launch.script_target import ScriptTarget
from ..launch.ways_in import ways_through
from ..machine.open_files import raise_file_limit
from ..machine.process_memory import return_freed_memory
from ..machine.torch_imports import do_without_compiler, do_without_convolution_libraries
from ..records.columns import noun
from ..records.ends import why_over
from ..records.records import EventRecord, Record
from ..run_settings.settings import Settings, aloud, of_tasks, silently
from ..settings.fields import SettingsError
from ..task.task import TaskError, kind_of
from ..training.stop import Stop
from .command_line import STOPPED, fail, meanwhile
from .flags import Command, SettingsCommand, of_task
from .output import Output, exits, prints_aside, run_options


def entry_options(command: Command) -> Command:
    """A decorator that adds the options by which a peer enters a run: --invite, --peer-key and --name."""
    invite = "The invite, or a file that has it, or - for stdin."
    for option in (
        click.option("--name", metavar="NAME", help="Name in the run. [default: this machine's]"),
        click.option("--peer-key", metavar="KEY", help="Public key of the peer at ADDRESS, with --key."),
        click.option("--invite", metavar="TEXT|FILE|-", envvar="SAMOVAR_INVITE", help=invite),
    ):
        command = option(command)
    return command


@click.command(cls=SettingsCommand, verb="join", first=("invite", "name", "device", "run"))
@click.argument("address")
@click.argument("task", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1)
@entry_options
@click.option("--insecure", is_flag=True, help="The run was started with --insecure.")
@run_options
@exits
def join(
    address: str,
    task: Path,
    arguments: tuple[str, ...],
    invite: str | None,
    peer_key: str | None,
    insecure: bool,
    name: str | None,
    config: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> int:
    """Join the run at ADDRESS with TASK, the same file as there, and its ARGUMENTS after --.

    TASK may be a training script: it runs as with python, and its samovar.join() joins that run.
    Period, steps, seed and protocol are the run's; only what concerns this machine is set here. Others on this machine
    can see an invite in the list of processes, but not one in a file, on stdin or in the variable SAMOVAR_INVITE.
    """
    entry = Entry(address, task, arguments, invite, peer_key, name)
    return entered(entry, {**flags, "insecure": insecure}, config, as_json=as_json, quiet=quiet)


@dataclass(frozen=True, slots=True)
class Entry:
    """The arguments of a command line by which a peer enters a run. `address`: of a peer of the run, whose public key
    is `peer_key`, None if there is an invite, which has it; `arguments`: the words for the task itself; `invite`: the
    invite's text, a file that has it, or "-" for stdin; `name`: of the new peer, None: made of the machine's; `role`:
    of the new peer in the run, "": it trains."""

    address: str
    task: Path
    arguments: Sequence[str]
    invite: str | None
    peer_key: str | None
    name: str | None
    role: str = ""


def entered(entry: Entry, flags: Mapping[str, object], config: Path | None, *, as_json: bool, quiet: bool) -> int:
    """Run the `join` command: take part in the run until it ends or a signal stops this peer. `flags`: settings by name
    (None: not given), which override those of the file `config`. Returns the exit code: 0, 2 for a failure, 130 for a
    stop. If the task is a script, this process is replaced by that script, whose `samovar.join` joins the run."""
    task, invite = entry.task, _read_invite(entry.invite)
    script, own = kind_of(task) == "script", of_task(task, entry.arguments)
    flags = {**flags, "arguments": None if script else own}
    settings = Settings.read(config, flags, silently if quiet else aloud)
    target, entry = JoinTarget.of(entry.address, invite, entry.peer_key, settings), replace(entry, invite=invite)
    name = own_name(entry.name, target.lasting(settings))
    if script:
        _check_of_script(task, settings, flags, as_json=as_json)
        given = {one: value for one, value in settings.plain().items() if flags.get(one) is not None}
        said = settings.not_usual() | given
        handed = ScriptTarget(entry.address, invite, entry.peer_key, entry.name, said, own or "", entry.role)
        os.execve(sys.executable, script_command(task, entry.arguments), handed.environment())  # noqa: S606  # no shell
    raise_file_limit()
    if settings.edge:
        return_freed_memory()
        do_without_compiler()
        do_without_convolution_libraries()
    return asyncio.run(_join(target, settings, entry, name, as_json, quiet))


def _check_of_script(task: Path, settings: Settings, flags: Mapping[str, object], *, as_json: bool) -> None:
    """Raises TaskError for what a training script decides in its own code."""
    idle = of_tasks({**settings.not_usual(), **flags})
    if idle := idle or ("leave out --json: a script prints what it likes" if as_json else ""):
        raise TaskError(f"{task} is a training script: {idle}")


def _read_invite(said: str | None) -> str | None:
    """The text of the invite that `said` gives: the text itself, a file that holds it, or "-" for stdin. Raises
    SettingsError when the file cannot be read."""
    if said == "-":
        return sys.stdin.readline().strip()
    if said is None or not os.path.isfile(said):  # isfile accepts a text of any length
        return said
    try:
        return Path(said).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{said}: cannot be read: {one_line(error)}", "invite", "--invite") from None


async def _join(target: JoinTarget, settings: Settings, entry: Entry, name: str, as_json: bool, quiet: bool) -> int:
    began, stop, task, role = time.monotonic(), Stop(), entry.task, entry.role
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with meanwhile(f"joining at {target.address} ...", sys.stderr):
        session = await stop.unless(lambda: open_at(target, settings, stop, name=name, task=task, role=role))
    if session is None:
        if not quiet:
            print(f"stopped before this peer was in the run; {_again(settings)}", file=sys.stderr)
        return STOPPED
    folder, columns = Path(session.orders.folder), conversation(session.settings).columns
    earlier = spent(folder)
    watched = session.settings.own.watched_metric()
    steps = session.settings.steps_max or 0
    output = Output(steps=steps, columns=columns, watched=watched, as_json=as_json, quiet=quiet)
    output.joins()
    file, record = session.recorder()
    ways_in = ways_through(session, task, entry.invite)

    def tell(what: Record) -> None:
        record(what)
        output.put(what)
        came = isinstance(what, EventRecord) and what.is_entry
        if came and ways_in is not None and (unwritten := ways_in.met(session.dialable)):
            output.say(unwritten)

    async with contextlib.AsyncExitStack() as user:
        for context in (output, file, prints_aside(as_json)):
            user.enter_context(context)
        if ways_in is not None:
            await user.enter_async_context(answered(folder, ways_in.answer, output.say))
        output.goes_on(earlier.recorded_s, earlier.peers)
        if session.settings.site is not None and (lacking := session.settings.own.sites_need()):
            output.say(f"--site does nothing: this run was started without {lacking}")
        ended = await run_peer(session, tell)
    if not ended.finished and not output.heard.exchanges and not as_json:
        output.say(f"stopped: this peer has left before its first {noun(columns)}; {_again(settings)}")
        return STOPPED
    result = conclude(
        folder,
        output.heard,
        wall_s=earlier.wall_s + time.monotonic() - began,
        metrics=ended.metrics,
        scales=ended.scales,
        end=ended.end,
        why=why_over(finished=ended.finished, script=False, role=role),
        goal=session.settings.own.goal(),
        report=settings.report,
    )
    unwritten = output.end(result)
    if ended.unkept:
        output.say(ended.unkept)
    if wrong := ended.unsaved or unwritten:
        return fail(wrong)
    if not ended.finished:
        output.say("stopped: this peer has left the run")
    return 0 if ended.finished else STOPPED


def _again(settings: Settings) -> str:
    """How to join again, in words. A run folder that is not kept for a key cannot be used twice."""
    folder = " and another --run" if settings.run is not None and settings.key is None else ""
    return f"to join again, give the same command{folder}"
