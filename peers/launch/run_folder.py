"""Run folders: their creation, and their contents at the end of a run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..reasons import reason
from ..records.records import COMMAND_FILE, RESULT_FILE, Lost, Result, read_run
from ..records.tally import Tally
from ..report.trace import write_trace
from ..report.write import write_report
from ..settings.settings import Settings

SETTINGS_FILE = "settings.json"
WAYS_IN_FILE = "join.txt"
REPORT_FILE = "report.html"
TRACE_FILE = "trace.json"


def make_folder(wished: str | None, task: Path) -> Path:
    """Make a folder for a new run: the one wished for, or the next free ``runs/TASK-NNN``.

    Raises ValueError when the wished one holds a run already, and when no folder can be made there.
    """
    try:
        folder = _empty_folder(wished, task)
        (folder / COMMAND_FILE).write_text(_command_line() + "\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{error.filename}: no run can be kept there: {reason(error)}") from None
    return folder


def _empty_folder(wished: str | None, task: Path) -> Path:
    if wished is not None:
        folder = Path(wished)
        # An empty record file is left by a run that never began, e.g. because its task could not be imported.
        if any(file.stat().st_size for file in folder.glob("peer-*.jsonl")):
            raise ValueError(f"{folder} holds a run already; choose another --run, or go on with --resume {folder}")
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = _next_free(task.stem)
    return folder


def _command_line() -> str:
    """The command line that started the run, without its secrets and its run folder."""
    words = [Path(sys.argv[0]).name.replace("__main__.py", "samovar"), *sys.argv[1:]]
    # An invite is a password, and this file and the report may be shown to others.
    words = ["..." if before == "--invite" else word for before, word in zip(["", *words], words, strict=False)]
    words = ["--invite=..." if word.startswith("--invite=") else word for word in words]
    # A run folder cannot be used twice.
    words = [word for before, word in zip(["", *words], words, strict=False) if "--run" not in (before, word)]
    return shlex.join(words)


def keep_settings(folder: Path, settings: Settings) -> None:
    """Write the run's settings to its folder, for a resume and for readers. Raises OSError."""
    (folder / SETTINGS_FILE).write_text(settings.to_json() + "\n", encoding="utf-8")


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Lock the folder for this process. Raises ValueError while another process runs in it."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder}: this run still goes on, in another process: stop that one first") from None
        except OSError:  # a file system that has no locks
            pass
        yield
    finally:
        os.close(file)


def _next_free(stem: str) -> Path:
    number = 1
    while True:
        folder = Path("runs") / f"{stem}-{number:03}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        return folder


def conclude(
    folder: Path,
    heard: Tally,
    *,
    wall_s: float,
    accuracy: float | None = None,
    lost: Sequence[Lost] = (),
    virtual_s: float | None = None,
    digest: str | None = None,
    broken: str | None = None,
    report: bool = True,
) -> Result:
    """The result of a run, from the records in its folder, or from those that were `heard` where the folder has fewer.
    `keep_result` writes it.

    `accuracy`: of the final model, None: from the records. `lost`: losses known beside the peers' records. Peers record
    when another went silent, but cannot know why.
    """
    try:
        run = read_run(folder)
        read = Tally(sorted((*run.events, *run.rounds), key=lambda record: record.time_s))
    except (OSError, ValueError):
        read = Tally()
    told = read if read.records >= heard.records else heard
    why = {loss.peer: loss.why for loss in lost}
    missed = [replace(loss, why=why.get(loss.peer, loss.why)) for loss in told.lost]
    return Result(
        accuracy=told.accuracy if accuracy is None else accuracy,
        accuracy_round=told.accuracy_round if accuracy is None else told.rounds,
        loss=told.loss,
        wall_s=wall_s,
        rounds=told.rounds,
        peers=tuple(told.peers.values()),
        lost=(*missed, *(loss for loss in lost if loss.peer not in {other.peer for other in missed})),
        elsewhere=told.elsewhere if virtual_s is None else (),
        run=str(folder),
        report=str(folder / REPORT_FILE) if report else None,
        virtual_s=virtual_s,
        digest=digest,
        broken=broken,
    )


def keep_result(result: Result, heard: Tally) -> None:
    """Write a result to its run's folder, with the trace, and the report if one is wished for. Raises OSError;
    ValueError when the folder lacks records that were `heard`; ModuleNotFoundError when only the report cannot be
    made."""
    folder = Path(result.run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT_FILE).write_text(result.to_json() + "\n", encoding="utf-8")
    run = read_run(folder)
    write_trace(run, folder / TRACE_FILE)
    if (count := len(run.rounds) + len(run.events)) < heard.records:
        raise ValueError(f"{folder} holds {count:,} of {heard.records:,} records")
    if result.report is not None:
        write_report(run, Path(result.report))
