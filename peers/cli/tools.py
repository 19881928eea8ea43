"""``samovar report`` and ``samovar keys``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..launch.keys import write_key
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


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the public key and the files as one JSON object.")
@exits
def keys(name: Path, as_json: bool) -> int:
    """Make a key pair: NAME.key, to be kept secret, and NAME.pub, to be listed by those who should let you in.

    A peer is its key. Put the public keys that may join into a file, one a line, and start with --authorized FILE.
    """
    pair = write_key(name)
    files = {"public": pair.public, "secret_file": f"{name}.key", "public_file": f"{name}.pub"}
    if as_json:
        click.echo(json.dumps(files))
    else:
        click.echo(f"public key: {pair.public}\nsecret key: {name}.key (only you can read it)")
    return 0
