"""The scene of a simulation: the network between the peers, the times at which each was up, and the faults.

A simulation writes it to `scene.json` in the run folder, beside the peers' records, and a report of that folder draws
it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final, Literal

from ..whole_file import write_whole
from .consensus import Consensus
from .json_lines import build, line, parse

SCENE_FILE: Final = "scene.json"

Ending = Literal["finished", "crashed", "gave up", "out of memory", "still there"]
BAD_ENDINGS: Final = ("crashed", "gave up", "out of memory")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A peer on the map: its site, its own link and the bytes that the link carried. Rates are in bytes a second."""

    peer: str
    site: str
    link: str
    """The link as a user writes it: ``10mbit,40ms``."""
    up_Bps: float
    down_Bps: float
    bytes_up: int
    bytes_down: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cable:
    """The connection between two sites `a` and `b`, with its rate in bytes a second and the bytes in both directions.
    `link`: empty if the scenario has no trunk there; the rate is then 0, and the bytes are those between the peers of
    the two sites."""

    a: str
    b: str
    link: str
    Bps: float
    bytes_ab: int
    bytes_ba: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """The time from one start of a peer's process to its end, in seconds since the run started."""

    peer: str
    from_s: float
    until_s: float
    ending: Ending
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A fault applied to the peers `who`; empty: all peers. Times are in seconds since the run started. `until_s` None:
    the fault did not end."""

    kind: str
    who: tuple[str, ...]
    at_s: float
    until_s: float | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """The scene of one run; times are in virtual seconds since the run began. `lasted_s`: from there to the end of the
    simulation. `broken`: the first promise that did not hold, and how; "": all held, or none was checked. `consensus`:
    how far the peers' own models were apart, in order of time; empty: the peers have no models of their own."""

    lasted_s: float
    places: tuple[Place, ...]
    cables: tuple[Cable, ...]
    stays: tuple[Stay, ...]
    troubles: tuple[Trouble, ...]
    broken: str = ""
    consensus: tuple[Consensus, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the scene to `SCENE_FILE` in `folder`. Raises OSError."""
        write_whole(folder / SCENE_FILE, line(dataclasses.asdict(self)) + "\n")


def read_scene(folder: Path) -> Scene | None:
    """The scene in a run folder; None: the run was no simulation, or its simulation has not ended. Raises a ValueError
    of one line when the file is damaged."""
    file = folder / SCENE_FILE
    return build(Scene, parse(file.read_bytes(), str(file)), str(file)) if file.exists() else None
