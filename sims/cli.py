"""``samovar simulate``: a run in virtual time, a scenario file, or a sweep over many seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ..peers.cli.command_line import fail
from ..peers.cli.flags import OWN, SettingsCommand, of_task
from ..peers.cli.output import Output, exits, prints_aside, run_options
from ..peers.records.result import Result
from ..peers.run_settings.settings import Settings, Tell, aloud, silently
from ..peers.settings.unit_rules import MEASURED
from .run import IN_GROUPS, Play, play, play_of_scenario, play_of_task
from .sweeps.show import show_sweep


@click.command(cls=SettingsCommand, verb="simulate", first=("peers", "link", "steps", OWN, "scenario", "run"))
@click.argument("task", type=click.Path(path_type=Path), required=False)
@click.argument("arguments", nargs=-1)
@click.option("--scenario", type=click.Path(path_type=Path), metavar="FILE", help="Peers, links, faults: a TOML file.")
@click.option(
    "--sweep", type=click.IntRange(1, 1_000_000), metavar="N", help="Draw N scenarios from --seed on; judge them."
)
@click.option("--minimise", is_flag=True, help="With --sweep: make what fails as small as it can be.")
@run_options
@exits
def simulate(
    task: Path | None,
    arguments: tuple[str, ...],
    scenario: Path | None,
    sweep: int | None,
    minimise: bool,
    config: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: object,
) -> int:
    """Run TASK with many peers in virtual time, on links of your choice (100mbit,5ms). ARGUMENTS, after --, are TASK's.

    The same seed gives the same run, to the last bit: its digest says so. Exit code 1: a promise was broken.
    """
    flags["arguments"] = None if task is None else of_task(task, arguments)
    given = {name: value for name, value in {"config": config, **flags}.items() if value is not None}
    if sweep is not None:
        drawn = [name for name in given if name not in ("seed", "protocol")]
        _leave_out("sweep", "draws all but seed and protocol", drawn)
        if task or scenario:
            raise click.UsageError("--sweep draws its scenarios: leave out TASK and --scenario")
        return _sweep(sweep, given, smallest=minimise, as_json=as_json, quiet=quiet)
    if minimise:
        raise click.UsageError("--minimise is for a --sweep")
    tell = silently if quiet else aloud
    if scenario is not None:
        _leave_out("scenario", "says it in the file", [name for name in given if name in IN_GROUPS])
        return _scenario(scenario, task, flags, tell, as_json=as_json, quiet=quiet)
    if task is None:
        raise click.UsageError("missing argument 'TASK', or --scenario, or --sweep")
    return _task(task, Settings.read(config, {"device": "cpu", **flags}, tell), as_json=as_json, quiet=quiet)


def _leave_out(option: str, why: str, names: list[str]) -> None:
    if names:
        raise click.UsageError(f"--{option} {why}: leave out --{names[0].replace('_', '-')}")


def _sweep(count: int, given: Mapping[str, object], *, smallest: bool, as_json: bool, quiet: bool) -> int:
    settings = Settings.read(None, given)
    first, protocol = settings.seed, settings.protocol.text if "protocol" in given else None
    Settings(seed=first + count - 1)  # the last one must be a seed too
    return show_sweep(first, count, protocol, smallest=smallest, as_json=as_json, quiet=quiet)


def _task(task: Path, settings: Settings, *, as_json: bool, quiet: bool) -> int:
    with prints_aside(as_json):
        wished = play_of_task(task, settings)
        output = _output(wished, as_json=as_json, quiet=quiet)
        if idle := settings.own.idle_here(settings):
            output.say(idle)
        if settings.step_time == MEASURED:
            takes = wished.scenario.settings.step_time
            output.say(f"a local step takes {takes}; the same run again: --step-time {takes}")
        result, _ = play(wished, output)
    unwritten = output.end(result)
    _tell_digest(output, result, as_json=as_json)
    return fail(unwritten) if unwritten else 0


def _scenario(
    file: Path, task: Path | None, flags: dict[str, object], tell: Tell, *, as_json: bool, quiet: bool
) -> int:
    with prints_aside(as_json):
        wished = play_of_scenario(file, task, flags, tell)
        output = _output(wished, as_json=as_json, quiet=quiet)
        result, last = play(wished, output)
    unwritten = output.end(result)
    if result.broken is not None:
        output.say("\n".join(("the last events:", *last)))
        click.echo(f"broken promise: {result.broken}", err=as_json)
    _tell_digest(output, result, as_json=as_json)
    if result.broken is not None:
        return 1
    return fail(unwritten) if unwritten else 0


def _output(wished: Play, *, as_json: bool, quiet: bool) -> Output:
    columns, watched = wished.columns, wished.watched
    return Output(steps=wished.steps, columns=columns, watched=watched, as_json=as_json, quiet=quiet)


def _tell_digest(output: Output, result: Result, *, as_json: bool) -> None:
    if not as_json:
        output.say(f"digest: {result.digest}")
