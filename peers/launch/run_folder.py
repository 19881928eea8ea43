"""Run folders: their creation, their lock, the files that tell how the run was started and with which settings, and the
run's result at its end."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from ...aggregation.goals import Goal
from ...protocols.conversation import End
from ..checkpoints.best import best_path, kept_best
from ..reasons import reason
from ..records.consensus import Consensus
from ..records.losses import with_known
from ..records.metrics import scale_of
from ..records.result import Best, Lost, PeerSummary, Result
from ..records.run import COMMAND_FILE, FAILURE_FILE, RESULT_FILE, SETTINGS_FILE, read_result, read_run
from ..records.tally import Tally, tally_of, told_by
from ..run_settings.settings import Settings
from ..whole_file import write_whole

ANOTHER = "choose another --run"
WAYS_IN_FILE = "join.txt"
REPORT_FILE = "report.html"
TRACE_FILE = "trace.json"
TASK_FILE = "task.py"
"""The name, in the run's folder, of a task file that was collected from a notebook or class."""


def make_folder(wished: str | None, task: Path, command: str | None = None, *, advice: str = ANOTHER) -> Path:
    """Make the folder of a new run: `wished`, or if that is None the next free ``runs/TASK-NNN``, and write the command
    to it. `command`: how the run was started; None: by this process's command line. Raises ValueError when no folder
    can be made there, and, with the `advice` to the user, when `wished` holds a run already."""
    try:
        folder = _empty_folder(wished, task, advice)
        (folder / COMMAND_FILE).write_text(_line(command or command_line()), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{error.filename}: no run can be kept there: {reason(error)}") from None
    return folder


def _empty_folder(wished: str | None, task: Path, advice: str) -> Path:
    if wished is not None:
        folder = Path(wished)
        # An empty record file is left by a run that never began, e.g. because its task could not be imported.
        if any(file.stat().st_size for file in folder.glob("peer-*.jsonl")):
            raise ValueError(f"{folder} holds a run already; {advice}")
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = _next_free(task.stem)
    return folder


def keep_resuming(folder: Path, command: str) -> None:
    """Append `command`, by which the run in `folder` is resumed, to the file with the command that started it. Does
    nothing if there is no such file. Raises OSError."""
    if (file := folder / COMMAND_FILE).exists():
        with file.open("a", encoding="utf-8") as commands:
            commands.write(_line(command))


def _line(command: str) -> str:
    return command.replace("\n", " ") + "\n"


def command_line() -> str:
    """This process's command line as text, without the run's folder, and with "..." for the invite, which is a
    secret."""
    given = sys.argv[1:]
    own = given.index("--") if "--" in given else len(given)  # behind it are the task's, which keeps them as they are
    program = Path(sys.argv[0]).name.replace("__main__.py", "samovar")
    words = [*(["python"] if program.endswith(".py") else []), program, *given[:own]]
    # An invite is a password, and this file and the report may be shown to others.
    words = ["..." if before == "--invite" else word for before, word in zip(["", *words], words, strict=False)]
    words = ["--invite=..." if word.startswith("--invite=") else word for word in words]
    # A run folder cannot be used twice.
    words = [word for before, word in zip(["", *words], words, strict=False) if "--run" not in (before, word)]
    return shlex.join([*words, *given[own:]])


def keep_settings(folder: Path, settings: Settings) -> None:
    """Write the run's settings to its folder, from which `--resume` and the user read them. Raises OSError."""
    write_whole(folder / SETTINGS_FILE, settings.to_json() + "\n")


def keep_failure(folder: Path, error: str) -> None:
    """Write the `error` with which the run failed to its folder, from which `Result.read` tells it. Does nothing if
    that is impossible."""
    with contextlib.suppress(OSError):
        (folder / FAILURE_FILE).write_text(_line(error), encoding="utf-8")


def forget_failure(folder: Path) -> None:
    """Remove the error of an earlier start from the folder, because the run is started again. Does nothing if there is
    none, or if that is impossible."""
    with contextlib.suppress(OSError):
        (folder / FAILURE_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[None]:
    """A context in which this process holds a lock on the folder, if the file system has locks. Raises ValueError if
    another process holds it."""
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


@dataclass(frozen=True, slots=True)
class Spent:
    """The time and the work of a run since it first began, also in processes before the last resume. `wall_s`: its
    seconds, as far as its result or its last record tells; `recorded_s`: the time of its last record, in seconds since
    it began; `peers`: the totals of its peers."""

    wall_s: float = 0.0
    recorded_s: float = 0.0
    peers: tuple[PeerSummary, ...] = ()


def spent(folder: Path) -> Spent:
    """The time and the work of the run in the folder so far: zeros and no peers for a new run, and for a folder that
    cannot be read."""
    try:
        run, ended = read_run(folder), read_result(folder)
    except (OSError, ValueError):
        return Spent()
    recorded_s = max([0.0, *(one.time_s for one in run.exchanges), *(one.time_s for one in run.events)])
    concluded_s = ended.wall_s if ended else 0.0  # up to the last end that was not a kill
    return Spent(max(recorded_s, concluded_s), recorded_s, tuple(Tally(run.exchanges).peers.values()))


def cut_off(folder: Path, peer: str) -> str:
    """Why the last process that wrote the records of `peer` in the folder was lost, in words; "": it ended in good
    order, or there are no records that can be read."""
    try:
        run = read_run(folder)
    except (OSError, ValueError):
        return ""
    last = next((event for event in reversed(run.events) if event.peer == peer), None)
    if run.result is not None or last is None or last.event in ("stopped", "ended"):
        return ""
    return last.why if last.event == "error" else "its process ended without a word"


def conclude(
    folder: Path,
    heard: Tally,
    *,
    wall_s: float,
    measured: Sequence[tuple[str, Mapping[str, float]]] = (),
    scales: Mapping[str, str] | None = None,
    end: End | None = None,
    why: str = "",
    goal: Goal | None = None,
    lost: Sequence[Lost] = (),
    consensus: Consensus | None = None,
    virtual_s: float | None = None,
    digest: str | None = None,
    broken: str | None = None,
    report: bool = True,
) -> Result:
    """The result of a run, from the records in its folder, or from those that the launcher has `heard` if the folder
    has fewer. `keep_result` writes it.

    `wall_s`: seconds of real time, of a resumed run from its first beginning. `measured`: of each peer that has
    evaluated the final model, its name and the metrics, with their `scales`, as in `Result`, which has those of the
    last one; empty: it has those of the records. `end`: why the run is over; None: no peer reports a setting that has
    ended it, and it is over because of `why`, in words; "": it is not over, or nobody knows. `goal`: at which it was to
    end; None: at no such one. `lost`: peers that the launcher or the simulation knows to be lost, with reason and time,
    which the records of the others cannot tell (`with_known`).
    Of a simulation only: `consensus`: how close the peers' models were at the end; `virtual_s`: the seconds of the
    simulated world; `digest`: of its events; `broken`: the promise that did not hold. `report`: the result names a
    report.
    """
    try:
        run = read_run(folder)
        read, noun = tally_of(run), run.noun
    except (OSError, ValueError):
        read, noun = Tally(), heard.noun
    told = read if read.records >= heard.records else heard
    metrics, units = (measured[-1][1], scales or {}) if measured else (told.metrics, told.scales)
    whose = told_by(measured, own_models=told.own_models) if measured else told.metrics_of
    return Result(
        metrics=metrics,
        metric_scales=units,
        metrics_at=told.last_of(whose) if measured else told.metrics_at,
        metrics_of=whose,
        best=_best_in(folder),
        ended_by=None if end is None else end.by,
        ended_why=why if end is None else end.why,
        missed=_missed(goal, end, metrics, units),
        loss=told.loss,
        wall_s=wall_s,
        noun=noun,
        exchanges=told.exchanges,
        peers=tuple(told.peers.values()),
        lost=with_known(told.lost, lost),
        elsewhere=told.elsewhere if virtual_s is None else (),
        run=str(folder),
        report=str(folder / REPORT_FILE) if report else None,
        consensus=consensus,
        virtual_s=virtual_s,
        digest=digest,
        broken=broken,
    )


def _missed(goal: Goal | None, end: End | None, metrics: Mapping[str, float], scales: Mapping[str, str]) -> str:
    """`Result.missed`. The last model may reach a goal that ended no run, as it is evaluated after the end."""
    if goal is None or end is None or end.by == "stop" or goal.met(metrics.get(goal.metric, math.nan)):
        return ""
    return goal.told(scale_of(goal.metric, scales).unit == "%")


def _best_in(folder: Path) -> Best | None:
    path = best_path(folder)
    kept = kept_best(path)
    if kept is None:
        return None
    return Best(metric=kept.metric, value=kept.value, at=kept.version, file=str(path), of=kept.peer)


def keep_result(result: Result, heard: Tally) -> None:
    """Write a result, the trace, and the report if the result names one, to the run's folder. Each file is written
    whole, or left as it was. Raises OSError; ValueError when the folder lacks records that the launcher has `heard`, or
    has damaged ones; ModuleNotFoundError when only the report cannot be made. After any of these errors the written
    result names no report, if the disk still takes it. The report's modules are imported here, so that they take no
    memory while peers train."""
    folder = Path(result.run)
    folder.mkdir(parents=True, exist_ok=True)
    _write_result(result)
    trace, report = (import_module(f"..report.{name}", __package__) for name in ("trace", "write"))
    try:
        run = read_run(folder)
        trace.write_trace(run, folder / TRACE_FILE)
        if (count := len(run.exchanges) + len(run.events)) < heard.records:
            raise ValueError(f"{folder} holds {count:,} of {heard.records:,} records")
        if result.report is not None:
            report.write_report(run, Path(result.report))
    except (OSError, ValueError, ModuleNotFoundError):
        with contextlib.suppress(OSError):
            _write_result(replace(result, report=None))  # it names no report that is not there
        raise


def _write_result(result: Result) -> None:
    write_whole(Path(result.run) / RESULT_FILE, result.to_json() + "\n")
