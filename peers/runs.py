"""Run folders: where they are made, what is in them at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .records import (
    COMMAND_FILE,
    RESULT_FILE,
    EventRecord,
    Lost,
    PeerSummary,
    Record,
    Result,
    RoundRecord,
    read_run,
)
from .trace import write_trace

SETTINGS_FILE = "settings.json"
REPORT_FILE = "report.html"
TRACE_FILE = "trace.json"


def make_folder(wished: str | None, task: Path) -> Path:
    """A folder for a new run: the one wished for, or the next free ``runs/TASK-NNN``.

    Raises ValueError when the wished one holds a run already, OSError when it cannot be made.
    """
    if wished is not None:
        folder = Path(wished)
        if any(folder.glob("peer-*.jsonl")):
            raise ValueError(f"{folder} holds a run already; choose another --run, or go on with --resume {folder}")
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = _next_free(task.stem)
    words = [Path(sys.argv[0]).name.replace("__main__.py", "samovar"), *sys.argv[1:]]
    (folder / COMMAND_FILE).write_text(shlex.join(words) + "\n", encoding="utf-8")
    return folder


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


def losses(records: Iterable[Record]) -> tuple[Lost, ...]:
    """Every peer that was lost, as the first who missed it told; by time."""
    first: dict[str, Lost] = {}
    told = (record for record in records if isinstance(record, EventRecord) and record.event == "lost")
    for event in sorted(told, key=lambda event: event.time_s):
        first.setdefault(event.subject, Lost(peer=event.subject, when=event.time_s, why=event.why))
    return tuple(first.values())


def summary_of(peer: str, records: Iterable[Record]) -> PeerSummary:
    """What `peer` did, from its records: for one that cannot tell any more."""
    rounds = [record for record in records if isinstance(record, RoundRecord) and record.peer == peer]
    return PeerSummary(
        peer=peer,
        steps=round(sum(record.steps_per_s * record.compute_s for record in rounds)),
        rounds=len(rounds),
        bytes_sent=sum(record.bytes_sent for record in rounds),
        bytes_received=sum(record.bytes_received for record in rounds),
        compute_s=sum(record.compute_s for record in rounds),
        wait_s=sum(record.wait_s for record in rounds),
        transfer_s=sum(record.transfer_s for record in rounds),
        loss=rounds[-1].loss if rounds else float("nan"),
    )


def conclude(
    folder: Path,
    records: Sequence[Record],
    summaries: dict[str, PeerSummary],
    *,
    wall_s: float,
    accuracy: float | None = None,
    lost: Sequence[Lost] = (),
    virtual_s: float | None = None,
    digest: str | None = None,
    report: bool = True,
) -> Result:
    """The result of a run: written to its folder beside the report and the trace.

    `summaries`: of the peers that told theirs; `lost`: what is known beside what peers have told.
    """
    names = sorted({record.peer for record in records} | set(summaries), key=lambda name: (len(name), name))
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    evaluated = [record.accuracy for record in rounds if record.accuracy is not None]
    last = max(rounds, key=lambda record: (record.round, record.time_s), default=None)
    told = losses(records)
    known = {loss.peer for loss in told}
    result = Result(
        accuracy=accuracy if accuracy is not None else (evaluated[-1] if evaluated else None),
        loss=last.loss if last else float("nan"),
        wall_s=wall_s,
        rounds=last.round if last else 0,
        peers=tuple(summaries.get(name) or summary_of(name, records) for name in names),
        lost=(*told, *(loss for loss in lost if loss.peer not in known)),
        run=str(folder),
        report=str(folder / REPORT_FILE) if report else None,
        virtual_s=virtual_s,
        digest=digest,
    )
    (folder / RESULT_FILE).write_text(result.to_json() + "\n", encoding="utf-8")
    write_trace(read_run(folder), folder / TRACE_FILE)
    return result
