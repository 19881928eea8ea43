"""`samovar.join`: a user's own PyTorch loop becomes a peer, with at most five more lines.

    import samovar
    run = samovar.join()
    optimizer = run.wrap(optimizer, model)
    ...
    run.leave()

`join` returns a `Run` (`run`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

import torch

from ...protocols.addresses import NOWHERE
from ..conversations.loading import chosen
from ..launch.control import CONTROL_VARIABLE
from ..launch.join_target import JoinTarget, open_alone, open_at, own_name
from ..launch.keys import Invite
from ..launch.script_target import ScriptTarget
from ..launch.session import Session, open_for_launcher, orders_of_launcher
from ..launch.ways_in import WaysIn, ways_through
from ..machine.open_files import raise_file_limit
from ..machine.process_name import name_process
from ..machine.threads import threads_for
from ..machine.torch_imports import do_without_compiler, import_all_of_torch
from ..records.run import first_command
from ..run_settings.settings import Settings, Tell, aloud, of_tasks, silently
from ..settings.fields import SettingsError
from ..settings.in_python import in_python, python_words
from ..settings.keywords import JoinSettings
from ..settings.names import PROTOCOL, agreed_of, fields_of, flag_of
from ..training.stop import Stop
from .loop_thread import Background
from .main_script import errors_are_lines, is_script
from .run import Run

_SILENT_S = 2.0
"""Seconds of dialling after which the user is told."""


def join(
    address: str | None = None,
    *,
    invite: str | None = None,
    peer_key: str | None = None,
    name: str | None = None,
    **settings: Unpack[JoinSettings],
) -> Run:
    """Join a run, and return this process's `Run` in it. There are four cases.

    In a process that ``samovar train SCRIPT`` started, the command's settings override those given here, and a setting
    that all peers share and the command leaves out is refused here if it differs; the other arguments are ignored. In
    one that ``samovar join ADDRESS SCRIPT`` started, the run is that of the command, and the command's settings
    override those given here. Otherwise it is the run at `address`. Without an `address`, this process founds a new
    run, of ``peers=1`` by default, and a line on stderr tells how other peers join it.

    `invite`: the invite that the founder printed; `peer_key`: public key of the peer at `address`, for a run without
    invites; `name`: this peer's display name; None: the machine's name, and a number or the key's first letters.
    `settings` are fields of `samovar.Settings` (``period=16``, ``peers=2``, ``listen="tcp://*:4000"``), but those that
    a script decides in its own code, such as ``steps``, are refused. A peer that joins takes the settings that all
    peers share from the run. Raises ValueError (of which SettingsError and JoinFailed are kinds), OSError and PeerLost,
    each with one line of text.
    """
    errors_are_lines()
    target = ScriptTarget(address, invite, peer_key, name, {"peers": 1, **settings})
    if (said := ScriptTarget.taken()) is not None:
        target = replace(said, name=said.name or name, settings={**target.settings, **said.settings})
    do_without_compiler() if target.settings.get("edge") else import_all_of_torch()
    background = Background()
    try:
        with in_python():
            return _run(background, target)
    except BaseException:
        background.close()
        raise


def _run(background: Background, said: ScriptTarget) -> Run:
    if idle := of_tasks(said.settings):
        raise SettingsError(idle)
    if CONTROL_VARIABLE in os.environ:
        session = _of_role(background, background.call(_launched()))
        _refuse_unheard(said.settings, session)
        return Run(background, session, None)
    wished = Settings.read(None, said.settings, lambda line: aloud(python_words(line)))
    _refuse_tasks_own(wished)
    wished = wished.changed(arguments=_own_arguments() if said.arguments is None else said.arguments)
    if said.address is None:
        session, way_in = background.call(_alone(wished, said.name))
        return Run(background, _of_role(background, session), way_in)
    way = {"invite": said.invite, "peer_key": said.peer_key, "insecure": wished.insecure or None}
    invitation = {"address": said.address, **{key: value for key, value in way.items() if value is not None}}
    target = JoinTarget.of(said.address, said.invite, said.peer_key, wished)
    return Run(background, _of_role(background, background.call(_joined(target, wished, said))), invitation)


def _refuse_unheard(given: Mapping[str, object], session: Session) -> None:
    """Raises SettingsError when the script gives some of the settings that all peers of its run share, and the command
    that started the run left them as they usually are. It names all that differ, and the whole command."""
    has, usual = session.settings.plain(), session.settings.not_usual()
    spoken = chosen(usual.get("protocol", given.get("protocol", PROTOCOL.default)))
    unheard = {name: given[name] for name in agreed_of(spoken) if name in given.keys() - usual.keys() - {"peers"}}
    shared = {name: value for name, value in usual.items() if name in fields_of(spoken)}
    try:
        wished = Settings.read(None, {**shared, **unheard}, silently).plain()
    except SettingsError as error:
        raise SettingsError(f"this script's settings contradict those of its run: {error}") from None
    if not (differ := {name: wished[name] for name in unheard if wished[name] != has.get(name)}):
        return
    told = [f"{name} is {value!r} in this script, and {has.get(name)!r} in the run" for name, value in differ.items()]
    start = _with(first_command(Path(session.orders.folder)) or f"samovar train {_this_script().name}", differ)
    raise SettingsError(f"{'; '.join(told)}: start the run by {start}")


def _with(command: str, settings: Mapping[str, object]) -> str:
    """The command, or the call of `samovar.train`, that began a run, with further `settings`."""
    if command.startswith("samovar.train("):
        return ", ".join([command.removesuffix(")"), *(f"{name}={value!r}" for name, value in settings.items())]) + ")"
    words = [[flag_of(name), *([] if value is True else [str(value)])] for name, value in settings.items()]
    before, dashes, after = command.partition(" -- ")
    return f"{before} {shlex.join(chain.from_iterable(words))}{dashes}{after}"


def _of_role(background: Background, session: Session) -> Session:
    """Set PyTorch's threads as the peer is to have them (`threads_for`). Seed PyTorch in a server's process, which
    trains nothing: all servers then make the same first model, unless the script seeds it otherwise."""
    threads = threads_for(session.settings.threads, session.orders.threads)
    torch.set_num_threads(threads)  # the number is per thread, and small sums run on that of the event loop
    background.soon(partial(torch.set_num_threads, threads))
    if session.orders.role:
        torch.manual_seed(0)
    return session


def _own_arguments() -> str:
    """The words of this script's command line, as one text; "" in a notebook, whose words are not its user's."""
    return shlex.join(sys.argv[1:]) if is_script() else ""


def _telling(said: ScriptTarget) -> Tell | None:
    """Tells the user when this script's arguments are not the run's. None: that is an error, because the command line
    gave them. A script that gets the address of the run from its arguments is told nothing, nor is a notebook."""
    if said.arguments is not None:
        return None
    own_address = said.address is not None and said.address in _own_arguments()
    return silently if own_address or not is_script() else aloud


def _refuse_tasks_own(settings: Settings) -> None:
    """Raises SettingsError when only a task can train with these settings."""
    if why := settings.own.tasks_only():
        raise SettingsError(why)


async def _launched() -> Session:
    control, orders = await orders_of_launcher()
    name_process(f"peer-{orders.name}")
    return await open_for_launcher(control, orders)


async def _alone(settings: Settings, name: str | None) -> tuple[Session, dict[str, Any]]:
    raise_file_limit()
    session, invitation = await open_alone(settings, task=_this_script(), name=name)
    invite = Invite.from_text(invitation["invite"]) if "invite" in invitation else None
    folder, way = Path(session.orders.folder), {"id": session.endpoint.id, "address": session.endpoint.address}
    spoken = settings.protocol
    ways_in = WaysIn(
        _this_script(),
        folder,
        invite,
        session.reinvited,
        in_python=not is_script(),
        protocol=spoken.file,
        arguments=settings.arguments,
    )
    if unwritten := ways_in.met([way]):
        print(f"samovar: {unwritten}", file=sys.stderr)
    await session.open_to_user(ways_in.answer)
    waits = f"waiting for {settings.founders - 1} more; " if settings.founders > 1 else ""
    print(f"samovar: {waits}join from another machine: {ways_in.lines[0]}", file=sys.stderr)
    return session, invitation


async def _joined(target: JoinTarget, settings: Settings, said: ScriptTarget) -> Session:
    raise_file_limit()
    name, tell, role = own_name(said.name, target.lasting(settings)), _telling(said), said.role
    line = f"dialling {target.address}: no answer yet ..."
    telling = asyncio.get_running_loop().call_later(_SILENT_S, aloud, line)
    try:
        session = await open_at(
            target,
            settings,
            Stop(),
            name=name,
            task=_this_script(),
            role=role,
            tell=tell,
            check=_refuse_tasks_own,
        )
    finally:
        telling.cancel()
    say = partial(print, "samovar:", file=sys.stderr)
    if (ways_in := ways_through(session, _this_script(), said.invite, say=say, in_python=not is_script())) is not None:
        ways = {session.endpoint.id: session.endpoint.address, target.contact: target.address}
        found = [{"id": peer, "address": address} for peer, address in ways.items() if address != NOWHERE]
        if unwritten := ways_in.met(found):
            print(f"samovar: {unwritten}", file=sys.stderr)
        await session.open_to_user(ways_in.answer)
    return session


def _this_script() -> Path:
    return Path(sys.argv[0] or "script")
