"""A run as a Chrome trace, to open in Perfetto (ui.perfetto.dev) or chrome://tracing.

The format is Google's "Trace Event Format". Each peer is a process of the trace. In it a slice ('X') stands for an
exchange, with slices within it for compute, wait, transfer and evaluation; instants ('i') for the peer's events. The
process "run" has the counters ('C'), over all peers: loss, metrics and the conversation's own numbers. Times are whole
microseconds since the start of the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..records.columns import shown
from ..records.run import Run
from ..records.units import metric_label
from ..whole_file import write_whole
from .overview import absences, curve
from .timeline import Slot, slots

TraceEvent = dict[str, Any]

RUN_PID: Final = 0
"""The trace's process number for entries that concern the run and not one peer."""


def write_trace(run: Run, target: Path) -> Path:
    """Write the trace of a run to `target`, in the JSON format of Chrome's trace viewer and Perfetto, and return
    `target`. Makes missing folders and overwrites an older file. Raises OSError."""
    trace = {"traceEvents": list(_events(run)), "displayTimeUnit": "ms", "otherData": {"run": run.folder.name}}
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, json.dumps(trace, separators=(",", ":"), allow_nan=False))
    return target


def _events(run: Run) -> Iterator[TraceEvent]:
    missing = absences(run)
    names = [*run.peers, *(event.subject for event in run.events), *(absence.peer for absence in missing)]
    pids = {name: pid for pid, name in enumerate(dict.fromkeys(names), RUN_PID + 1)}
    yield from _process(RUN_PID, "run")
    for name, pid in pids.items():
        yield from _process(pid, name)
    yield from _counters(run)
    for slot in slots(run.exchanges):
        yield from _exchange(slot, pids[slot.peer])
    for absence in missing:
        for when in absence.lost_s:
            args = {"why": absence.why, "address": absence.address, "advice": absence.advice}
            yield _instant("lost", pids[absence.peer], when, args)
    for event in run.events:
        if event.event != "lost":  # many peers record it: it stands above, once
            yield _instant(event.event, pids[event.subject], event.time_s, {"why": event.why, "told by": event.peer})


def _process(pid: int, name: str) -> Iterator[TraceEvent]:
    meta = {"ph": "M", "pid": pid, "tid": 0, "ts": 0}
    yield meta | {"name": "process_name", "args": {"name": name}}
    yield meta | {"name": "process_sort_index", "args": {"sort_index": pid}}


def _counters(run: Run) -> Iterator[TraceEvent]:
    for point in curve(run):
        metrics = {metric_label(name): value for name, value in point.metrics.items()}
        details = {name: point.details[name] for name in shown(run.columns) if name in point.details}
        for name, value in (metrics | details | {"loss": point.loss}).items():
            if math.isfinite(value):
                counter = {"ph": "C", "pid": RUN_PID, "tid": 0, "ts": _micros(point.time_s)}
                yield counter | {"name": name, "args": {name: value}}


def _exchange(slot: Slot, pid: int) -> Iterator[TraceEvent]:
    record = slot.last
    start, end = _micros(slot.start_s), _micros(slot.end_s)
    args = {
        "loss": record.loss if math.isfinite(record.loss) else None,
        "step": record.step,
        **record.details,
        "members": record.members,
        "waited for": record.waited_for,
        "seconds of that as it evaluated": record.evaluation_wait_s,
        "hidden seconds": slot.hidden_s,
        "missing": [absent.peer for absent in record.missing],
        "bytes sent": record.bytes_sent,
        "bytes received": record.bytes_received,
        "bytes shared": record.bytes_shared,
    }
    name = f"{record.noun} {record.version}" + (" (caught up)" if record.caught_up else "")
    slice_ = {"ph": "X", "pid": pid, "tid": 0}
    yield slice_ | {"name": name, "cat": record.noun, "ts": start, "dur": end - start, "args": args}
    for phase, begin, length, spent in slot.phases():
        first = _micros(begin)
        until = min(end, _micros(begin + length))
        if until > first:
            args = {"measured seconds": spent}
            yield slice_ | {"name": phase, "cat": phase, "ts": first, "dur": until - first, "args": args}


def _instant(name: str, pid: int, time_s: float, args: Mapping[str, str]) -> TraceEvent:
    instant = {"ph": "i", "s": "p", "cat": "event", "pid": pid, "tid": 0}
    return instant | {"name": name, "ts": _micros(time_s), "args": args}


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
