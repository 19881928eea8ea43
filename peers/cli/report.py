"""``samovar report``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..launch.run_folder import REPORT_FILE, TRACE_FILE
from ..records.run import read_run
from ..report.trace import write_trace
from ..report.write import write_report
from .output import exits


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print where the files are as one JSON object.")
@exits
def report(run: Path, as_json: bool) -> int:
    """Write report.html and trace.json for the folder RUN, also of a run that goes on or was killed.

    The report is one file for any browser; the trace opens in Perfetto (ui.perfetto.dev) or chrome://tracing.
    """
    found = read_run(run)
    files = {
        "report": str(write_report(found, run / REPORT_FILE)),
        "trace": str(write_trace(found, run / TRACE_FILE)),
    }
    click.echo(json.dumps(files) if as_json else "\n".join(f"{what}: {file}" for what, file in files.items()))
    return 0
