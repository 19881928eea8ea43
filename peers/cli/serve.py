"""``samovar serve``: hold the model of a run for its workers, on this machine, without training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ...protocols.members.attributes import SERVER
from ..launch.local_run import prepared
from ..run_settings.roles import check_servers
from ..run_settings.settings import aloud, silently
from ..settings.fields import SettingsError
from ..settings.names import fields_of, flag_of
from .flags import OWN, SettingsCommand, chosen_protocol, of_task
from .join import Entry, entered, entry_options
from .output import Output, exits, run_options
from .train import trained

_FIRST = ("invite", "peers", "steps", OWN, "run", "resume")


@click.command(cls=SettingsCommand, verb="train", protocol="parameter_server", first=_FIRST)
@click.argument("words", nargs=-1, required=True, metavar="[ADDRESS] TASK [ARGUMENTS]...")
@entry_options
@click.option("--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a stopped run's folder.")
@run_options
@exits
def serve(
    words: tuple[str, ...],
    invite: str | None,
    peer_key: str | None,
    name: str | None,
    config: Path | None,
    resume: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> int:
    """Hold the model of TASK for workers on other machines, and train nothing here.

    Without ADDRESS this begins a run of --servers servers, all on this machine. It waits for --peers workers, which
    take part by samovar join; the line for that is printed. With the ADDRESS of a run and its invite one more server
    joins that run; its settings are the run's then. ARGUMENTS, after --, are the task's own.
    """
    if len(words) == 1 and "://" in words[0]:
        raise click.UsageError("missing argument TASK", click.get_current_context())
    address, first, *arguments = words if "://" in words[0] else ("", *words)
    task, given = Path(first), {**flags, "protocol": chosen_protocol().text}
    if address:
        fields = fields_of(chosen_protocol())
        shared = {name for name, field in fields.items() if "join" not in field.metadata["verbs"]} - {"insecure"}
        _refuse("is the run's: leave it out", **{one: value for one, value in flags.items() if one in shared})
        _refuse("is for a run that begins here: leave it out", resume=resume)
        entry = Entry(address, task, arguments, invite, peer_key, name, SERVER)
        return entered(entry, given, config, as_json=as_json, quiet=quiet)
    of_task(task, arguments)
    _refuse("is for one more server: give the run's ADDRESS too", invite=invite, peer_key=peer_key, name=name)
    tell = silently if quiet else aloud
    run = prepared(task, tuple(arguments), given, config=config, resume=resume, tell=tell)
    check_servers(run.settings)
    output = Output(steps=run.steps, columns=run.columns, watched=run.watched, as_json=as_json, quiet=quiet)
    return trained(replace(run, role=SERVER), output, "serve")


def _refuse(why: str, **given: object) -> None:
    """Raises SettingsError for the first option that is given."""
    for name, value in given.items():
        if value is not None:
            raise SettingsError(why, name, flag_of(name))
