"""The scene of a simulation, beyond the peers' own records: the network between them, when each was up, and the faults.

It is one `scene.json` in the run folder, which a report made from that folder draws.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final, Literal

from .json_lines import build, line, parse

SCENE_FILE: Final = "scene.json"

Ending = Literal["finished", "crashed", "gave up", "out of memory", "still there"]
BAD_ENDINGS: Final = ("crashed", "gave up", "out of memory")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A peer on the map: its site, its own connection, and the bytes over it."""

    peer: str
    site: str
    link: str
    """As people write it: ``10mbit,40ms``."""
    up_Bps: float
    down_Bps: float
    bytes_up: int
    bytes_down: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cable:
    """A cable between two sites. `link`: empty where there is no trunk, only traffic between the peers of the two."""

    a: str
    b: str
    link: str
    Bps: float
    bytes_ab: int
    bytes_ba: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """One life of a peer. Times: seconds since the run started."""

    peer: str
    from_s: float
    until_s: float
    ending: Ending
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A fault applied to some or all peers. Times: seconds since the run started; `until_s` None: for good."""

    kind: str
    who: tuple[str, ...]
    at_s: float
    until_s: float | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """The scene of one run. `lasted_s`: duration of the run; `broken`: the promise that did not hold, empty: all
    held."""

    lasted_s: float
    places: tuple[Place, ...]
    cables: tuple[Cable, ...]
    stays: tuple[Stay, ...]
    troubles: tuple[Trouble, ...]
    broken: str = ""

    def write(self, folder: Path) -> None:
        (folder / SCENE_FILE).write_text(line(dataclasses.asdict(self)) + "\n", encoding="utf-8")


def read_scene(folder: Path) -> Scene | None:
    """The scene in a run folder; None: the run was no simulation. Raises a ValueError of one line."""
    file = folder / SCENE_FILE
    return build(Scene, parse(file.read_bytes(), str(file)), str(file)) if file.exists() else None
