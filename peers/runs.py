"""Run folders: where they are made, what is in them at the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .records import COMMAND_FILE, RESULT_FILE, EventRecord, Lost, Result, read_run
from .report.overview import totals
from .report.trace import write_trace
from .settings import Settings

SETTINGS_FILE = "settings.json"
WAYS_IN_FILE = "join.txt"
REPORT_FILE = "report.html"
TRACE_FILE = "trace.json"


def make_folder(wished: str | None, task: Path) -> Path:
    """A folder for a new run: the one wished for, or the next free ``runs/TASK-NNN``.

    Raises ValueError when the wished one holds a run already, OSError when it cannot be made.
    """
    if wished is not None:
        folder = Path(wished)
        # A file without a record is of a run that never began, e.g. because its task could not be imported.
        if any(file.stat().st_size for file in folder.glob("peer-*.jsonl")):
            raise ValueError(f"{folder} holds a run already; choose another --run, or go on with --resume {folder}")
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = _next_free(task.stem)
    words = [Path(sys.argv[0]).name.replace("__main__.py", "samovar"), *sys.argv[1:]]
    # An invite is a password, and this file and the report may be shown to others.
    words = ["..." if before == "--invite" else word for before, word in zip(["", *words], words, strict=False)]
    words = ["--invite=..." if word.startswith("--invite=") else word for word in words]
    # Nor can the same run folder be used again.
    words = [word for before, word in zip(["", *words], words, strict=False) if "--run" not in (before, word)]
    (folder / COMMAND_FILE).write_text(shlex.join(words) + "\n", encoding="utf-8")
    return folder


def keep_settings(folder: Path, settings: Settings) -> None:
    """Write down what the run goes by, for whoever resumes it or looks at it. Raises OSError."""
    (folder / SETTINGS_FILE).write_text(settings.to_json() + "\n", encoding="utf-8")


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Keep the folder to this process meanwhile. Raises ValueError when another one's run still goes on in it."""
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


def losses(events: Iterable[EventRecord]) -> tuple[Lost, ...]:
    """Every peer that was lost, as the first who missed it told; by time."""
    first: dict[str, Lost] = {}
    for event in sorted((event for event in events if event.event == "lost"), key=lambda event: event.time_s):
        first.setdefault(event.subject, Lost(peer=event.subject, when=event.time_s, why=event.why))
    return tuple(first.values())


def conclude(
    folder: Path,
    *,
    wall_s: float,
    accuracy: float | None = None,
    lost: Sequence[Lost] = (),
    virtual_s: float | None = None,
    digest: str | None = None,
    broken: str | None = None,
    report: bool = True,
) -> Result:
    """The result of a run, from its records; written to its folder, with the trace beside it.

    `lost`: what is known beside what peers have told, who saw when a peer went silent, but not why.
    """
    run = replace(read_run(folder), result=None)
    evaluated = [record.accuracy for record in run.rounds if record.accuracy is not None]
    averaged = (record for record in run.rounds if not record.caught_up)
    last = max(averaged, key=lambda record: (record.round, record.time_s), default=None)
    why = {loss.peer: loss.why for loss in lost}
    missed = [replace(loss, why=why.get(loss.peer, loss.why)) for loss in losses(run.events)]
    result = Result(
        accuracy=accuracy if accuracy is not None else (evaluated[-1] if evaluated else None),
        loss=last.loss if last else float("nan"),
        wall_s=wall_s,
        rounds=max((record.round for record in run.rounds), default=0),
        peers=tuple(totals(run)),
        lost=(*missed, *(loss for loss in lost if loss.peer not in {other.peer for other in missed})),
        run=str(folder),
        report=str(folder / REPORT_FILE) if report else None,
        virtual_s=virtual_s,
        digest=digest,
        broken=broken,
    )
    (folder / RESULT_FILE).write_text(result.to_json() + "\n", encoding="utf-8")
    write_trace(run, folder / TRACE_FILE)
    return result
