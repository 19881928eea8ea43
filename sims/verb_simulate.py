"""``samovar simulate``: the run of a task file in virtual time, before anybody pays for machines."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ..peers.output import Output, run_verb
from ..peers.records import Record, RecordFile
from ..peers.runs import SETTINGS_FILE, conclude, make_folder
from ..peers.settings import Settings, click_options
from ..peers.task import load_task
from .loop import run_virtual
from .scenario import Scenario
from .world import World

_FLAGS = (
    "peers", "link", "step_time", "protocol", "schedule", "period", "period_initial", "period_block_s", "steps",
    "seed", "patience_s", "quorum", "run", "evaluate_every", "report",
)  # fmt: skip


@click.command(short_help="Train a task with many peers in virtual time.")
@click.argument("task", type=click.Path(path_type=Path))
@click_options(*_FLAGS)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings from a TOML file.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
def simulate(task: Path, config: Path | None, as_json: bool, quiet: bool, **flags: object) -> None:
    """Run TASK with many peers in virtual time, on links of your choice.

    The same seed gives the same run, to the last bit: its digest says so.
    """

    def work() -> int:
        settings = Settings.read(config, {"device": "cpu", **flags})
        functions = load_task(task)
        folder = make_folder(settings.run, task)
        (folder / SETTINGS_FILE).write_text(settings.to_json() + "\n", encoding="utf-8")
        output, files = Output(steps=settings.steps, as_json=as_json, quiet=quiet), _Files(folder)
        began = time.monotonic()

        def record(what: Record) -> None:
            files.append(what)
            output.put(what)

        with output, files:
            simulated = run_virtual(World(functions, Scenario.plain(settings), record).run(), seed=settings.seed)
        result = conclude(
            folder,
            simulated.summaries,
            wall_s=time.monotonic() - began,
            accuracy=simulated.accuracy,
            virtual_s=simulated.virtual_s,
            digest=simulated.digest,
            report=settings.report,
        )
        output.end(result)
        return 0

    run_verb(work)


class _Files:
    """One record file for each peer, as real peers write them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, RecordFile] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()

    def append(self, record: Record) -> None:
        if record.peer not in self._files:
            self._files[record.peer] = RecordFile(self._folder, record.peer)
        self._files[record.peer].append(record)
