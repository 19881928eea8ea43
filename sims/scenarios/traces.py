"""Traces: CSV files with the measured times at which peers went up and down and their links changed. A trace is read as
arrivals and faults.

time,peer,what          the first line may name the columns
0s,3,up                 peer 3 joins; a peer without `up` in its first up or down line is there from the start
12.5s,3,down            peer 3 crashes
40s,3,up                peer 3 restarts, with its checkpoint
41s,0,"2mbit,80ms"      the link of peer 0 changes; the quotes may be left out
60s,0,usual             peer 0 has its own link again
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...peers.settings.link_text import parse_duration, parse_link
from ...peers.settings.toml_file import read_text
from ...protocols.link_spec import LinkSpec
from .scenario import Fault, Kind

_WAYS = ("up", "down")


@dataclass(frozen=True, slots=True)
class Trace:
    """The contents of a trace. `arrivals`: number of a peer -> virtual time at which it joins, in seconds. `faults`:
    crashes, restarts and changes of links."""

    arrivals: dict[int, float]
    faults: list[Fault]


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    at_s: float
    peer: int
    what: str | LinkSpec


def read_trace(path: Path, peers: int) -> Trace:
    """Read a trace for a scenario with `peers` peers. Raises a ValueError of one line that names file and line."""
    changes: dict[int, list[_Row]] = defaultdict(list)
    trace = Trace({}, [])
    links: dict[int, list[_Row]] = defaultdict(list)
    for row in sorted(_rows(path, peers), key=lambda row: row.at_s):
        (changes if row.what in _WAYS else links)[row.peer].append(row)
    for peer, found in links.items():
        for row, later in zip(found, [*found[1:], None], strict=True):
            if isinstance(row.what, LinkSpec) and (later is None or later.at_s > row.at_s):
                for_s = 0.0 if later is None else later.at_s - row.at_s
                trace.faults.append(Fault(kind=Kind.LINK, who=(peer,), at_s=row.at_s, for_s=for_s, link=row.what))
    for peer, found in changes.items():
        _follow(peer, found, trace)
    return trace


def _follow(peer: int, changes: Sequence[_Row], trace: Trace) -> None:
    """Add one peer's arrival and its crashes and restarts to `trace`, from its rows, which are in order of time. Raises
    ValueError when two successive rows are equal."""
    for before, row in pairwise(changes):
        if before.what == row.what:
            raise ValueError(f"{row.place}: peer {peer} is {row.what} already")
    first = changes[0]
    if first.what == "down" and first.at_s == 0 and len(changes) > 1:
        changes = changes[1:]
    if changes[0].what == "up":
        trace.arrivals[peer], changes = changes[0].at_s, changes[1:]
    for gone, back in zip(changes[::2], [*changes[1::2], None], strict=False):
        kind, for_s = (Kind.CRASH, 0.0) if back is None else (Kind.RESTART, back.at_s - gone.at_s)
        trace.faults.append(Fault(kind=kind, who=(peer,), at_s=gone.at_s, for_s=for_s))


def _rows(path: Path, peers: int) -> Iterator[_Row]:
    lines = csv.reader(read_text(path, "trace").splitlines())
    for cells in lines:
        place = f"{path}, line {lines.line_num}"
        words = [cell.strip() for cell in cells]
        if not any(words) or words[0].startswith("#") or words[:2] == ["time", "peer"]:
            continue
        if len(words) < 3:
            raise ValueError(f"{place}: time, peer and what are due: up, down, a link or usual")
        try:
            what = words[2] if words[2] in (*_WAYS, "usual") else parse_link(",".join(words[2:]))
            at_s = parse_duration(words[0])
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if not words[1].isdecimal() or len(words[1]) > 9 or int(words[1]) >= peers:
            raise ValueError(f"{place}: there is no peer {words[1][:60]!r}, only 0 to {peers - 1}")
        yield _Row(place, at_s, int(words[1]), what)
