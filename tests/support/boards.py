"""Records of a made-up run, the table that shows them, and a clock that a test moves."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from rich.console import Console, RenderableType

from samovar.peers.cli.live_table import Board
from samovar.peers.records.event_names import EventName
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record


class Clock:
    """Monotonic seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def committed(peer: str, number: int, **changes: Any) -> ExchangeRecord:
    record = ExchangeRecord(
        peer=peer,
        version=number,
        details={"round": number, "generation": 1, "period": 10},
        step=10 * number,
        time_s=float(number),
        loss=2.0 / number,
        compute_s=0.7,
        wait_s=0.2,
        transfer_s=0.1,
        bytes_sent=1_500_000,
        bytes_received=250_000,
        steps_per_s=12.5,
        members=3,
    )
    return dataclasses.replace(record, **changes)


def happened(peer: str, event: EventName, about: str = "", **told: str) -> EventRecord:
    """`told`: other fields of the event, by name."""
    return EventRecord(peer=peer, time_s=1.0, event=event, about=about, **told)  # type: ignore[arg-type]


def terminal(width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=40, legacy_windows=False, _environ={})


def drawn(what: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, _environ={})
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def board(*records: Record, steps: int = 100, watched: str = "") -> Board:
    found = Board(steps=steps, watched=watched)
    for record in records:
        found.update(record)
    return found


def row(text: str, peer: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{peer} "))
    return line
