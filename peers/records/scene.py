"""What a simulation knows beside what its peers tell: the network between them, who was up when, what befell whom.

One `scene.json` in the run folder; a report made from that folder draws it.
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
    """A peer on the map: its site, its own connection, and what went over that."""

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
    """Between two sites. `link`: empty where there is no trunk, only what their peers said to each other."""

    a: str
    b: str
    link: str
    Bps: float
    bytes_ab: int
    bytes_ba: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stay:
    """One life of a peer: seconds since the run started."""

    peer: str
    from_s: float
    until_s: float
    ending: Ending
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Something that was done to peers, or to all: seconds since the run started; `until_s`: None: for good."""

    kind: str
    who: tuple[str, ...]
    at_s: float
    until_s: float | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """`lasted_s`: how long the run went on. `broken`: the promise that did not hold; empty: all did."""

    lasted_s: float
    places: tuple[Place, ...]
    cables: tuple[Cable, ...]
    stays: tuple[Stay, ...]
    troubles: tuple[Trouble, ...]
    broken: str = ""

    def write(self, folder: Path) -> None:
        (folder / SCENE_FILE).write_text(line(dataclasses.asdict(self)) + "\n", encoding="utf-8")


def read_scene(folder: Path) -> Scene | None:
    """None: the run was no simulation. Raises a ValueError of one line."""
    file = folder / SCENE_FILE
    return build(Scene, parse(file.read_bytes(), str(file)), str(file)) if file.exists() else None
