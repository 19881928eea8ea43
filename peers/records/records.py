"""The records of a run: one JSON line each in `peer-<name>.jsonl`, and one `result.json`.

A peer appends to its own file only, so a killed peer can spoil no line but its last one. Everything shown after a run
(report, trace, table) is made from these files alone. `record_file` writes them, `read_run` reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from .elsewhere import Elsewhere
from .json_lines import FloatOrNaN, build, line, parse
from .scene import Scene, read_scene

RESULT_FILE: Final = "result.json"
COMMAND_FILE: Final = "command.txt"
"""The command line that started the run, as a person would type it. Optional."""
_QUOTED_MAX: Final = 120
"""Length of a peer's quoted name in a file name, before it is shortened."""

EventName = Literal[
    "started",
    "joined",
    "left",
    "lost",
    "apart",
    "together",
    "waiting",
    "stalled",
    "goes_on",
    "alone",
    "period",
    "checkpoint",
    "resumed",
    "stopped",
    "error",
    "restarted",
    "checkpoint_failed",
    "records_failed",
    "refused",
    "invite",
]
"""`stalled`: a live peer's contribution is missing because its own work takes far longer than usual. `refused`: this
peer refused messages of some key. `invite`: the run's invite was revoked or replaced."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A peer that a round had to do without."""

    peer: str
    address: str = ""
    since_s: float
    """When it was missed, in seconds since the run started."""
    why: str
    advice: str = ""
    """Advice to the user."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RoundRecord:
    """One committed round, as one peer saw it."""

    peer: str
    round: int
    """Counts from 1."""
    generation: int
    """Number of the membership view that made the round."""
    period: int
    """Local steps between the previous average and this one."""
    step: int
    """Local steps since the run started, after this round."""
    time_s: float
    """When the round was over on this peer, its evaluation included: seconds since the run started, on its monotonic
    clock."""
    loss: FloatOrNaN
    """Mean training loss agreed in this round; NaN if it was not reported, or the round was not averaged here."""
    compute_s: float
    """Seconds of local steps; with gradients, until this peer's last one, even if some were already being sent."""
    wait_s: float
    """Seconds of waiting for others to contribute, or for agreement on them."""
    evaluation_wait_s: float = 0.0
    """The part of `wait_s` in which the peer in `waited_for` was evaluating."""
    transfer_s: float
    """The remaining seconds of the averaging."""
    hidden_s: float = 0.0
    """Seconds of averaging behind local steps (`--overlap`). They are in none of the three above, which then cover the
    time since the previous record."""
    evaluate_s: float = 0.0
    """Seconds of evaluating this round's model, before `time_s`, on the peer that evaluates."""
    bytes_sent: int
    """Bytes on the wire in this round; so are `bytes_received`."""
    bytes_received: int
    bytes_shared: int = 0
    """Bytes exchanged through memory that peers on one machine share; no message carries them."""
    steps_per_s: FloatOrNaN
    members: int
    """Number of members in the view that made the round."""
    missing: tuple[Missing, ...] = ()
    waited_for: str = ""
    """The peer whose late contribution caused most of `wait_s`; empty: none that this peer could see or, for an
    evaluation, was told of."""
    accuracy: float | None = None
    """From 0 to 1; None on a peer that did not evaluate."""
    caught_up: bool = False
    """The round was not averaged here, but adopted from a donor."""

    def to_json(self) -> str:
        """One line, without the newline."""
        return line({"kind": "round"} | dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EventRecord:
    """An event that happened to a peer, or that it saw happen to another."""

    peer: str
    """The peer that records the event."""
    time_s: float
    """Seconds since the run started, on the recording peer's monotonic clock."""
    event: EventName
    about: str = ""
    """The peer it happened to; empty: the recording peer itself."""
    why: str = ""
    work: str = ""
    """For `stalled`, the work of the subject: 'local steps', 'evaluation'; empty: unknown."""
    generation: int = 0
    """Number of the recording peer's membership view at the time."""
    key: str = ""
    """The key of the peer `about`, where it joined, left or was lost: any peer may take any name."""

    @property
    def subject(self) -> str:
        """The peer it happened to."""
        return self.about or self.peer

    def to_json(self) -> str:
        """One line, without the newline."""
        return line({"kind": "event"} | dataclasses.asdict(self))


Record = RoundRecord | EventRecord


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PeerSummary:
    """One peer's totals for the run: local steps, bytes on the wire, bytes shared, and seconds."""

    peer: str
    steps: int
    rounds: int
    bytes_sent: int
    bytes_received: int
    bytes_shared: int = 0
    compute_s: float
    wait_s: float
    transfer_s: float
    hidden_s: float = 0.0
    """Seconds of averaging behind local steps."""
    evaluation_wait_s: float = 0.0
    """The part of `wait_s` in which the awaited peer was evaluating."""
    evaluate_s: float = 0.0
    """Seconds of evaluating."""
    loss: FloatOrNaN
    """The loss of its last round."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A member that went silent."""

    peer: str
    when: float
    """Seconds since the run started."""
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How a run ended."""

    accuracy: float | None = None
    """From 0 to 1; None when no peer evaluated."""
    accuracy_round: int | None = None
    """The round whose model was evaluated."""
    loss: FloatOrNaN
    wall_s: float
    """Wall-clock seconds of the run."""
    rounds: int
    peers: tuple[PeerSummary, ...] = ()
    lost: tuple[Lost, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    run: str
    """The run folder."""
    report: str | None = None
    """Path of the report; None when there is none."""
    virtual_s: float | None = None
    """Simulations only: seconds that passed in the simulated world."""
    digest: str | None = None
    """Simulations only: a digest of the events, equal for equal seeds."""
    broken: str | None = None
    """Simulations only: the promise that did not hold, and how."""

    def to_json(self) -> str:
        """One line, without the newline. The fields of simulations are omitted for a real run."""
        row = dataclasses.asdict(self)
        for key in ("virtual_s", "digest", "broken"):
            if row[key] is None:
                del row[key]
        return line(row)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The contents of a run folder."""

    folder: Path
    peers: tuple[str, ...]
    """Names in natural order: p2 before p10."""
    rounds: tuple[RoundRecord, ...]
    """The records of all peers, in order of time; so are `events`."""
    events: tuple[EventRecord, ...]
    result: Result | None = None
    """None while the run goes on, and when it was killed."""
    command: str = ""
    """The command line that started it; empty when unknown."""
    scene: Scene | None = None
    """Simulations only: the world around the peers."""


def peer_file(folder: Path, peer: str, ending: str = ".jsonl") -> Path:
    """The file of one peer. A name from the wire stays inside the folder: '../x' becomes 'peer-..%2Fx.jsonl'. A name
    too long for a file name is cut and given a hash."""
    quoted = quote(peer, safe="")
    if len(quoted) > _QUOTED_MAX:
        quoted = f"{quoted[:_QUOTED_MAX]}~{hashlib.blake2b(peer.encode(), digest_size=8).hexdigest()}"
    return folder / f"peer-{quoted}{ending}"


def read_record(text: str) -> Record:
    """The record in a line of `to_json`; raises a ValueError of one line if there is none."""
    return _record(parse(text.encode("utf-8", "replace"), "record"), "record")


def read_run(folder: Path) -> Run:
    """Read a run's folder, finished or not. A torn last line is skipped; other damage is a ValueError of one line."""
    files = sorted(folder.glob("peer-*.jsonl"))
    result = folder / RESULT_FILE
    if not files and not result.exists():
        raise ValueError(f"{folder}: not a run folder, it has neither peer-*.jsonl nor {RESULT_FILE}")
    records = sorted((record for file in files for record in _records(file)), key=lambda record: record.time_s)
    rounds = tuple(record for record in records if isinstance(record, RoundRecord))
    events = tuple(record for record in records if isinstance(record, EventRecord))
    ended = build(Result, parse(result.read_bytes(), str(result)), str(result)) if result.exists() else None
    names = {record.peer for record in records} | {peer.peer for peer in (ended.peers if ended else ())}
    command = folder / COMMAND_FILE
    return Run(
        folder=folder,
        peers=tuple(sorted(names, key=natural)),
        rounds=rounds,
        events=events,
        result=ended,
        command=command.read_text(encoding="utf-8", errors="replace").strip() if command.exists() else "",
        scene=read_scene(folder),
    )


def _records(file: Path) -> Iterator[Record]:
    *lines, tail = file.read_bytes().split(b"\n")
    for number, text in enumerate(lines, 1):
        if text.strip():
            yield _record(parse(text, f"{file}, line {number}"), f"{file}, line {number}")
    place = f"{file}, line {len(lines) + 1}"
    try:
        last = parse(tail, place)
    except ValueError:  # nothing after the last newline, or a line cut off when the peer was killed
        return
    yield _record(last, place)


def _record(row: Mapping[str, Any], place: str) -> Record:
    kind = row.get("kind")
    if kind == "round":
        return build(RoundRecord, row, place)
    if kind == "event":
        return build(EventRecord, row, place)
    raise ValueError(f"{place}: kind is {kind!r:.40}, neither 'round' nor 'event'")


def natural(name: str) -> list[tuple[int, str]]:
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
