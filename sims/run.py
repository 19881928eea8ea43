"""Running one scenario for a user: records, a scene and a result are written to a run folder, and promises are
checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..peers.conversations.registry import conversation
from ..peers.launch.display import Display
from ..peers.launch.run_folder import conclude, keep_settings, make_folder
from ..peers.records.columns import Columns
from ..peers.records.record_file import RecordFile
from ..peers.records.records import ExchangeRecord, Record
from ..peers.records.result import Result
from ..peers.run_settings.settings import Settings, Tell
from ..peers.settings.unit_rules import MEASURED
from ..peers.task.definitions import defined
from ..peers.task.task import Task, check_trainable, load_task
from ..peers.user_code import called_with
from .consensus import Observed
from .measure import measured_step_time
from .scenarios.file import read_scenario
from .scenarios.scenario import Scenario
from .scenarios.text import scenario_text
from .scenarios.toy import toy_task_of
from .scene import lost_in, scene_of
from .sweeps.tell import story
from .sweeps.verdict import bound_s, run_and_judge
from .world.loop import run_virtual
from .world.world import World

SCENARIO_FILE = "scenario.toml"
IN_GROUPS = ("peers", "link", "site", "step_time", "config")
"""Options that do not go with a scenario, because its file gives these values itself."""


class _Records:
    """The record files of all peers, one for each, as real peers write them. `began_s`: the virtual time at which the
    run began; None: it has not."""

    def __init__(self, folder: Path, output: Display, peers: int, columns: Columns) -> None:
        self._output = output
        self._files = {str(index): RecordFile(folder, str(index), columns) for index in range(peers)}
        self.began_s: float | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()

    def put(self, record: Record) -> None:
        now = asyncio.get_running_loop().time()
        if self.began_s is None:
            self.began_s = now - record.time_s
        # A latecomer's record has an estimate of the time since the run began; here this time is known.
        time_s = max(0.0, now - self.began_s)
        if isinstance(record, ExchangeRecord) and record.made_s is not None:
            record = replace(record, made_s=max(0.0, record.made_s + time_s - record.time_s))
        record = replace(record, time_s=time_s)
        failed = self._files[record.peer].append(record)
        self._output.put(record)
        if failed is not None:
            self._output.put(failed)


@contextmanager
def _telling(output: Display, folder: Path) -> Iterator[None]:
    """While in this context, an interruption first tells the user how to make a report of the records so far."""
    try:
        yield
    except KeyboardInterrupt:
        output.say(f"stopped; as far as it came: samovar report {folder}")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A scenario that is ready to be run with `task` in `folder`. `judged`: check the promises, for which every
    averaged vector is kept in memory. `within_s`: limit in virtual seconds, beyond which the run counts as hung; None:
    no limit."""

    task: Task
    scenario: Scenario
    folder: Path
    judged: bool = False
    within_s: float | None = None

    @property
    def columns(self) -> Columns:
        """The columns that the scenario's conversation adds to records and to the live table."""
        return conversation(self.scenario.settings).columns

    @property
    def watched(self) -> str:
        """The metric whose value ends the run; "": none does."""
        return self.scenario.settings.own.watched_metric()

    @property
    def steps(self) -> int:
        """Local steps of each peer; 0: another setting ends the run."""
        return self.scenario.settings.steps_max or 0


def play_of_task(task: Path, settings: Settings, command: str | None = None) -> Play:
    """A simulation of the task with these settings, without faults. Imports the task, makes the run's folder, and, if
    the settings ask for that, measures the time of a local step. `command`: how it was started, for its report; None:
    by this process's command line. Raises TaskError, ValueError when its folder cannot be made, and the errors of the
    measured steps."""
    functions = load_task(task, settings.arguments, settings.own.asks_of_task())
    folder = make_folder(settings.run, task, command)
    if settings.step_time == MEASURED:
        settings = settings.changed(step_time=measured_step_time(functions, settings))
    return Play(task=functions, scenario=Scenario.plain(settings), folder=folder)


def play_of_scenario(
    file: Path, task: Path | None, given: Mapping[str, object], tell: Tell, command: str | None = None
) -> Play:
    """The simulation in a scenario's file, whose promises are to be checked. Imports the task, and makes the run's
    folder. The virtual time is limited only for the toy task. `task`: in place of the file's task; `given`: settings
    over those of the file; `tell` is called with a line for each setting given by its former name, and one if a toy
    task is trained as there is no other; `command`: how the simulation was started, for its report; None: by this
    process's command line. Raises TaskError, SettingsError and other ValueErrors."""
    found = read_scenario(file, given, tell)
    task = task or found.task
    # The toy task has a known bound on its duration; a user's own task has none.
    within_s = None if task else bound_s(found.scenario)
    settings = found.scenario.settings
    asked = settings.own.asks_of_task()
    toy = partial(toy_task_of, found.scenario)
    functions = load_task(task, settings.arguments, asked) if task else toy()
    if task is None:
        defined(file, {}, asked)
        tell(f"{file} names no task: a toy task is trained")
    folder = make_folder(settings.run, file, command)
    return Play(task=functions, scenario=found.scenario, folder=folder, judged=True, within_s=within_s)


def play(wished: Play, output: Display) -> tuple[Result, tuple[str, ...]]:
    """Run a simulation. Writes its settings, scenario, records and scene to its folder, but not its result. Returns the
    result and, if a promise was broken, lines on the last events before that, else none. Raises TaskError, Diverged,
    OSError; in a simulation that is not judged also the other errors of the run."""
    task, scenario, folder = wished.task, wished.scenario, wished.folder
    settings = scenario.settings
    check_trainable(task.path, settings.own.scripts_only())
    keep_settings(folder, settings)
    task_file = task.path.resolve() if task.path.is_file() else None
    again = replace(scenario, settings=settings.changed(run=None))
    (folder / SCENARIO_FILE).write_text(scenario_text(again, task_file), encoding="utf-8")
    records = _Records(folder, output, scenario.peers, wished.columns)
    began, wrong = time.monotonic(), None
    with output, records, _telling(output, folder), called_with(task.path, settings.arguments):
        world = World(task, scenario, records.put)
        world.log.judged = wished.judged
        observed = Observed(world)
        if wished.judged:
            simulated, wrong = run_and_judge(world, within_s=wished.within_s)
        else:
            simulated = run_virtual(world.run(), seed=settings.seed)
        observed.end(simulated.virtual_s)
    began_s = records.began_s or 0.0
    scene = scene_of(world, observed.points, began_s=began_s, lasted_s=simulated.virtual_s, broken=wrong or "")
    scene.write(folder)
    result = conclude(
        folder,
        output.heard,
        wall_s=time.monotonic() - began,
        measured=simulated.measured,
        scales=simulated.scales,
        end=simulated.end,
        goal=settings.own.goal(),
        lost=lost_in(scene),
        consensus=scene.consensus[-1] if scene.consensus else None,
        virtual_s=simulated.virtual_s,
        digest=simulated.digest,
        broken=wrong,
        report=settings.report,
    )
    return result, story(scenario, world.log.entries, wrong) if wrong else ()
