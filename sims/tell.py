"""What a person is told of a simulation that went wrong: what was witnessed last, a line each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch import Tensor

from ..peers.units import plain
from .log import Entry

LAST = 12


def entry_text(entry: Entry) -> str:
    """``  12.345 s  3.1  committed round=4 key=(2, 4)``: when, which peer and life, what."""
    event = entry.event
    name = "".join(f" {char.lower()}" if char.isupper() else char for char in type(event).__name__).strip()
    fields = dataclasses.fields(event) if dataclasses.is_dataclass(event) else ()
    told = [(field.name, getattr(event, field.name)) for field in fields]
    shown = [f"{key}={value}" for key, value in told if not isinstance(value, Tensor) and value not in ("", None)]
    return f"{entry.time_s:10.4f} s  {entry.life:8} {plain(' '.join([name, *shown]), 160)}"


def last_events(entries: Sequence[Entry]) -> list[str]:
    return [entry_text(entry) for entry in entries[-LAST:]]
