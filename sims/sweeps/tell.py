"""The last events of a failed simulation as text, one a line."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence

from torch import Tensor

from ...peers.records.units import plain
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry
from .promises import promises, violations

LAST = 20


def entry_text(entry: Entry) -> str:
    """An event as a line: virtual time, peer and life, event and its fields, as in ``   12.3450 s  3.1      committed
    round=4 key=2,4``. Left out are tensors, and fields that are "" or None."""
    event = entry.event
    name = "".join(f" {char.lower()}" if char.isupper() else char for char in type(event).__name__).strip()
    fields = dataclasses.fields(event) if dataclasses.is_dataclass(event) else ()
    told = [(field.name, getattr(event, field.name)) for field in fields]
    shown = [
        f"{key}={_short(value)}" for key, value in told if not isinstance(value, Tensor) and value not in ("", None)
    ]
    return f"{entry.time_s:10.4f} s  {entry.life:8} {plain(' '.join([name, *shown]), 160)}"


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(item).removeprefix("peer-") for item in value)
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def story(scenario: Scenario, entries: Sequence[Entry], wrong: str) -> tuple[str, ...]:
    """The last `LAST` events up to the one that broke the promise in `wrong`; if no event did, e.g. because the run
    hung, the last events of the run. One event a line."""
    check, end = promises(scenario).get(wrong.split(":")[0]), len(entries)
    if check is not None:

        def is_broken(count: int) -> bool:
            return next(violations(check, scenario, entries[:count]), None) is not None

        if not is_broken(0):
            end = bisect_left(range(end), True, key=is_broken)
    return tuple(entry_text(entry) for entry in entries[max(0, end - LAST) : end])
