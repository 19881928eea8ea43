"""``samovar invite``: show or change the invite of a running run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ...protocols.members.invite_change import REINVITE_S
from ..launch.run_socket import ask
from ..launch.ways_in import asking
from ..records.run import SETTINGS_FILE
from ..records.units import plain
from ..run_settings.settings import Settings
from ..settings.fields import SettingsError
from .command_line import fail
from .flags import click_options
from .output import exits


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="End the present invite; those who are in stay.")
@click.option("--new", is_flag=True, help="End the present invite, and make another.")
@click_options("invite_uses", "invite_for")
@click.option("--json", "as_json", is_flag=True, help="Print the invite as one JSON object.")
@exits
def invite(run: Path, revoke: bool, new: bool, invite_uses: int | None, invite_for: str | None, as_json: bool) -> int:
    """Print the line by which others join the run in the folder RUN, which was begun or joined on this machine.

    An invite that was revoked lets nobody in any more. The keys that came by it before stay.
    """
    if revoke and new:
        raise SettingsError("also ends the present invite: leave out --revoke", "new", "--new")
    if not new and (invite_uses is not None or invite_for is not None):
        flag = "--invite-for" if invite_uses is None else "--invite-uses"
        raise SettingsError("is for a new invite: add --new", place=flag)
    Settings.read(None, {"invite_uses": invite_uses, "invite_for": invite_for})
    question = asking(new=new, revoke=revoke, uses=invite_uses, span=invite_for)
    told = ask(run, question, within_s=4 * REINVITE_S * _patience_s(run))
    if "error" in told:
        return fail(f"{run}: {plain(told['error'])}")
    if unwritten := told.pop("unwritten", ""):
        click.echo(f"samovar: {unwritten}", err=True)
    click.echo(json.dumps(told) if as_json else told["line"] or "revoked: nobody joins by an invite now")
    return 0


def _patience_s(run: Path) -> float:
    """The patience in the run's settings, in seconds. Raises SettingsError when the folder holds no run."""
    if not run.is_dir():
        raise SettingsError("there is no such folder", place=f"{run}:")
    try:
        return Settings.from_json((run / SETTINGS_FILE).read_text(encoding="utf-8")).patience_s
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"is not a run folder, it has no {SETTINGS_FILE}", place=str(run)) from None
