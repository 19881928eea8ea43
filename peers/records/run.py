"""The folder of a run: records in `peer-<name>.jsonl`, one file for each peer, and one `result.json`.

A peer appends to its own file only, so a killed peer damages at most the last line of its own file. Everything shown
after a run (report, trace, table) is made from the folder alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from .columns import ROUNDS, Columns, Noun, noun
from .json_lines import parse
from .records import EventRecord, ExchangeRecord, Record, read_header, record_of
from .result import Result, result_of
from .scene import Scene, read_scene

RESULT_FILE: Final = "result.json"
SETTINGS_FILE: Final = "settings.json"
FAILURE_FILE: Final = "failure.txt"
COMMAND_FILE: Final = "command.txt"
"""A file with the command line that started the run, as a person would type it, and a line for each that resumed it. It
may be missing."""
_QUOTED_MAX: Final = 120
"""Length of a peer's quoted name in a file name, before it is shortened."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The contents of a run folder."""

    folder: Path
    peers: tuple[str, ...]
    """The names of all peers with records in the folder or totals in the result, in natural order: p2 before p10."""
    columns: Columns
    """Name -> title of the conversation's columns."""
    exchanges: tuple[ExchangeRecord, ...]
    """The exchanges of all peers, in order of time."""
    events: tuple[EventRecord, ...]
    result: Result | None = None
    """Its result; None while the run goes on, and for a run that was killed, also where an earlier start of it has left
    a result, which knows less than the records."""
    command: str = ""
    """The command line that started it; empty when unknown."""
    resumed_by: tuple[str, ...] = ()
    """The command lines that resumed it, in order."""
    scene: Scene | None = None
    """Simulations only: the world around the peers."""

    @property
    def scales(self) -> Mapping[str, str]:
        """By name, the scales of all metrics in the records, as the task declares them, e.g. "higher %"; "": not
        declared."""
        told = [record.metric_scales for record in self.exchanges]
        return {name: text for scales in told for name, text in scales.items()}

    @property
    def noun(self) -> Noun:
        """The word for an exchange in texts about this run: "round", or "exchange" where peers do not exchange in
        common rounds."""
        return noun(self.columns)


def peer_file(folder: Path, peer: str, ending: str = ".jsonl") -> Path:
    """The path of one peer's file in `folder`, with that `ending`. Any peer name gives a file inside the folder: '../x'
    becomes 'peer-..%2Fx.jsonl'. A name too long for a file name is cut and given a hash."""
    quoted = quote(peer, safe="")
    if len(quoted) > _QUOTED_MAX:
        quoted = f"{quoted[:_QUOTED_MAX]}~{hashlib.blake2b(peer.encode(), digest_size=8).hexdigest()}"
    return folder / f"peer-{quoted}{ending}"


def read_run(folder: Path) -> Run:
    """Read a run's folder, finished or not. An incomplete last line of a file is skipped; other damage, and a folder
    without a run, raise ValueError, in one line; a file that cannot be opened raises OSError."""
    if not folder.exists():
        raise ValueError(f"{folder}: there is no such run folder")
    files = sorted(folder.glob("peer-*.jsonl"))
    result = folder / RESULT_FILE
    if not files and not result.exists():
        raise ValueError(f"{folder}: not a run folder, it has neither peer-*.jsonl nor {RESULT_FILE}")
    records: list[Record] = []
    columns: dict[str, str] = {}
    for row, place in (found for file in files for found in _rows(file)):
        if row.get("kind") == "schema":
            columns |= read_header(row, place).columns
        else:
            records.append(record_of(row, place))
    records.sort(key=lambda record: record.time_s)
    ended = read_result(folder)
    if ended is not None and _stale(ended, records):
        ended = None
    names = {record.peer for record in records} | {peer.peer for peer in (ended.peers if ended else ())}
    command, *resumed_by = _commands(folder / COMMAND_FILE)
    return Run(
        folder=folder,
        peers=tuple(sorted(names, key=natural)),
        columns=columns or ROUNDS,  # schema 1 has no headers
        exchanges=tuple(record for record in records if isinstance(record, ExchangeRecord)),
        events=tuple(record for record in records if isinstance(record, EventRecord)),
        result=ended,
        command=command,
        resumed_by=tuple(resumed_by),
        scene=read_scene(folder),
    )


def read_result(folder: Path) -> Result | None:
    """The result in a run's folder; None: there is none. Raises ValueError, in one line, for a damaged one, and
    OSError."""
    file = folder / RESULT_FILE
    return result_of(parse(file.read_bytes(), str(file)), str(file)) if file.exists() else None


def first_command(folder: Path) -> str:
    """The command that began the run in this folder, without its folder; "": none is known."""
    return _commands(folder / COMMAND_FILE)[0]


def _commands(file: Path) -> list[str]:
    """The command lines in the file, at least one; empty text: there is none."""
    text = file.read_text(encoding="utf-8", errors="replace").strip() if file.exists() else ""
    return text.split("\n")


def _stale(ended: Result, records: Iterable[Record]) -> bool:
    """Whether one of the result's peers has records of more exchanges than the result tells: the run went on after it.
    Records of others, that of a peer elsewhere for one, may have been copied to the folder since."""
    made = Counter(one.peer for one in records if isinstance(one, ExchangeRecord) and not one.caught_up)
    return any(made[peer.peer] > peer.exchanges for peer in ended.peers)


def read_records(file: Path) -> list[Record]:
    """The records in one peer's file, in the order in which they were written. Raises ValueError for damage other than
    an incomplete last line, and OSError."""
    return [record_of(row, place) for row, place in _rows(file) if row.get("kind") != "schema"]


def _rows(file: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The JSON rows of a record file, each with its file and line for errors."""
    *lines, tail = file.read_bytes().split(b"\n")
    for number, text in enumerate(lines, 1):
        if text.strip():
            yield parse(text, f"{file}, line {number}"), f"{file}, line {number}"
    place = f"{file}, line {len(lines) + 1}"
    try:
        last = parse(tail, place)
    except ValueError:  # nothing after the last newline, or a line cut off when the peer was killed
        return
    yield last, place


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key for names in natural order: p2 before p10."""
    return [(int(text[:18]), "") if text.isdecimal() else (-1, text) for text in re.split(r"(\d+)", name)]
