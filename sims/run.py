"""Running one scenario for a user: records, a scene and a result are written to a run folder, and promises are
checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..peers.cli.output import Output
from ..peers.conversations.registry import conversation
from ..peers.launch.run_folder import conclude, keep_settings
from ..peers.records.columns import Columns
from ..peers.records.record_file import RecordFile
from ..peers.records.records import Record
from ..peers.records.result import Result
from ..peers.settings.settings import Settings
from ..peers.task.task import Task, check_trainable
from ..peers.user_code import called_with
from .scenarios.scenario import Scenario
from .scenarios.text import scenario_text
from .scene import lost_in, scene_of
from .sweeps.tell import story
from .sweeps.verdict import run_and_judge
from .world.loop import run_virtual
from .world.world import World

SCENARIO_FILE = "scenario.toml"


def columns_of(settings: Settings) -> Columns:
    """The columns of the conversation that `settings` choose."""
    return conversation(settings).columns


class _Records:
    """The record files of all peers, one for each, as real peers write them. `began_s`: the virtual time at which the
    run began; None: it has not."""

    def __init__(self, folder: Path, output: Output, peers: int, columns: Columns) -> None:
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
        record = replace(record, time_s=max(0.0, now - self.began_s))
        failed = self._files[record.peer].append(record)
        self._output.put(record)
        if failed is not None:
            self._output.put(failed)


@contextmanager
def _telling(output: Output, folder: Path) -> Iterator[None]:
    """A context that tells the user, if it is interrupted, how to make a report of the records so far."""
    try:
        yield
    except KeyboardInterrupt:
        output.say(f"stopped; as far as it came: samovar report {folder}")
        raise


def play(
    task: Task, scenario: Scenario, folder: Path, output: Output, *, judged: bool, within_s: float | None
) -> tuple[Result, tuple[str, ...]]:
    """Run `scenario`. Returns the result and, if a promise was broken, lines on the last events before that. `judged`:
    check the promises, for which every averaged vector is kept in memory. `within_s`: limit in virtual seconds, beyond
    which the run counts as hung; None: no limit."""
    settings = scenario.settings
    check_trainable(task.path, settings.own.scripts_only())
    keep_settings(folder, settings)
    task_file = task.path.resolve() if task.path.is_file() else None
    again = replace(scenario, settings=settings.changed(run=None))
    (folder / SCENARIO_FILE).write_text(scenario_text(again, task_file), encoding="utf-8")
    records = _Records(folder, output, scenario.peers, columns_of(settings))
    began, wrong = time.monotonic(), None
    with output, records, _telling(output, folder), called_with(task.path, settings.arguments):
        world = World(task, scenario, records.put)
        world.log.judged = judged
        if judged:
            simulated, wrong = run_and_judge(world, within_s=within_s)
        else:
            simulated = run_virtual(world.run(), seed=settings.seed)
    scene = scene_of(world, began_s=records.began_s or 0.0, lasted_s=simulated.virtual_s, broken=wrong or "")
    scene.write(folder)
    result = conclude(
        folder,
        output.heard,
        wall_s=time.monotonic() - began,
        metrics=simulated.metrics,
        end=simulated.end,
        lost=lost_in(scene),
        virtual_s=simulated.virtual_s,
        digest=simulated.digest,
        broken=wrong,
        report=settings.report,
    )
    return result, story(scenario, world.log.entries, wrong) if wrong else ()
