"""The result of a run as a Python object: the fields of `result.json`, and the run's records."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..checkpoints.best import best_path
from ..checkpoints.checkpoint import CheckpointError
from ..cli.final_table import final_table, headline
from ..cli.notebook import html
from ..errors import one_line
from ..launch.run_folder import conclude, spent
from ..records import result as written
from ..records.records import EventRecord, ExchangeRecord
from ..records.run import FAILURE_FILE, Run, read_run
from ..records.tally import Tally
from ..report.plot import plotted
from ..script.main_script import errors_are_lines
from ..settings.keywords import PathText

_NESTED = ("metrics", "metric_scales", "details", "received_from", "counts")
"""Fields of a record that hold several values, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result(written.Result):
    """The result of a run. Its fields are those of `result.json` and `--json`: `metrics`, `loss`, `exchanges`, `peers`,
    `lost`, `report` (path of the report as text, or None), ... `folder` is a `Path`. Its records are read from the
    run's folder when they are asked for; this raises CheckpointError when the folder is gone or damaged."""

    @classmethod
    def of(cls, result: written.Result) -> Self:
        """A `Result` with the fields of `result`. Its `report` is None if that file does not exist."""
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        return cls(**fields | {"report": result.report if result.report and Path(result.report).exists() else None})

    @classmethod
    def read(cls, folder: PathText) -> Self:
        """The result of the run in `folder`; its `report` and the file of its `best` are paths there. Of a run that
        goes on, was killed or failed it is made of the records so far, and `ended_why` says so. Raises CheckpointError
        when that folder holds no run, a damaged one, or one without a result and without an exchange."""
        errors_are_lines()
        run, place = _read(Path(folder)), Path(folder)
        ended = _so_far(run) if run.result is None else run.result
        best = ended.best and dataclasses.replace(ended.best, file=str(best_path(place)))
        report = ended.report and str(place / Path(ended.report).name)
        return cls.of(dataclasses.replace(ended, run=str(folder), best=best, report=report))

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.run)

    @property
    def records(self) -> list[ExchangeRecord]:
        """The records of all peers, one for each exchange (a round of local SGD), in order of time."""
        return list(self._run.exchanges)

    @property
    def events(self) -> list[EventRecord]:
        """The events of all peers, e.g. of one that joined, left or was lost, in order of time."""
        return list(self._run.events)

    def columns(self) -> dict[str, list[Any]]:
        """The records as columns of equal length, a row for each record, as ``pandas.DataFrame`` takes them. Each
        metric, and each of the conversation's own numbers (`details`), has a column of its own, with NaN where a record
        has none. A metric that is called like a field of a record (`loss`) or one of these numbers has the column
        ``metrics.loss``. `missing` holds lists of peers' names. The other fields with several values by name are left
        out."""
        fields = [one.name for one in dataclasses.fields(ExchangeRecord) if one.name not in _NESTED]
        records = self._run.exchanges
        found = {name: [getattr(record, name) for record in records] for name in fields}
        found["missing"] = [[one.peer for one in record.missing] for record in records]
        for kind in ("details", "metrics"):
            for name in dict.fromkeys(name for record in records for name in getattr(record, kind)):
                column = f"{kind}.{name}" if name in found else name
                found[column] = [getattr(record, kind).get(name, math.nan) for record in records]
        return found

    def plot(self, *names: str) -> Any:
        """The curves of the report over time, one below the other, as a plotly figure: a notebook shows it, and
        ``.show()`` opens it in a browser. `names`: which ones, e.g. "loss", "accuracy", "period"; none: all. Raises
        ModuleNotFoundError when plotly is not installed, ValueError for a name that the run does not have, and
        CheckpointError as all records do."""
        return plotted(self._run, names)

    @cached_property
    def _run(self) -> Run:
        return _read(self.folder)

    def __repr__(self) -> str:
        return f"<samovar.Result: {', '.join(headline(self))}; in {self.run}>"

    def _repr_html_(self) -> str:
        return html(final_table(self))


def _so_far(run: Run) -> written.Result:
    """The result of a run that has none of its end, from its records. Raises CheckpointError when there is no exchange
    among them."""
    why, failure = "this run has no result: it goes on, or was killed", run.folder / FAILURE_FILE
    if failure.is_file():
        told = failure.read_text(encoding="utf-8", errors="replace").strip()
        why = f"this run failed: {told}"
    if not run.exchanges:
        raise CheckpointError(f"{run.folder}: {why}")
    found = conclude(run.folder, Tally(), wall_s=spent(run.folder).wall_s)
    return dataclasses.replace(found, ended_why=f"{why}; made from its records")


def _read(folder: Path) -> Run:
    try:
        return read_run(folder)
    except (ValueError, OSError) as error:
        raise CheckpointError(one_line(error)) from None
