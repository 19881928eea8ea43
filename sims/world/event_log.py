"""The event log: what the peers of a simulation saw, in order, for the checkers; and buggify, which disturbs their
code."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from ...protocols.local_sgd.rounds import Committed, Computed, Contributed, SiteCommitted, SiteContributed
from ...protocols.transfer.snapshot_transfer import Fetched
from .machine import MACHINE


class Entry(NamedTuple):
    """One event. `life`: the peer's number and that of its life, as ``3.1``."""

    time_s: float
    life: str
    event: object


@dataclass(frozen=True, slots=True)
class Fell:
    """The nemesis applied a fault: its kind, the affected lives, and its end; None: for good."""

    kind: str
    who: tuple[str, ...]
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """A peer was started. `remembers`: with the votes of its life before; `round`: of the checkpoint that it begins
    from, 0: none."""

    remembers: bool = False
    round: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """A peer's process has ended: it `finished` the run, was `crashed`, or gave up with an `error`; `foreseen`: an
    error with which a peer may end."""

    finished: bool = False
    crashed: bool = False
    error: str = ""
    foreseen: bool = True


@dataclass(frozen=True, slots=True)
class Resumed:
    """All peers have crashed; the following events are of another run, which continues from their checkpoints."""


@dataclass(frozen=True, slots=True)
class Complained:
    """An error occurred where nothing could report it: in a callback, or in a task that is never awaited."""

    what: str


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A peer needed more memory than it has and was killed for it."""

    needed_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Held:
    """How many bytes had arrived at a peer and were not consumed yet."""

    inbound_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A peer refused messages of another as misbehaviour."""

    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Misdelivered:
    """A peer was delivered the message of `sender` with that `number` on its lane, when another one was `due`."""

    sender: str
    what: str
    number: int
    due: int


_JUDGED = Fetched | Contributed | Computed | Committed | SiteContributed | SiteCommitted


class Log:
    """All events, and how often each `sometimes` place was reached."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.reached: Counter[str] = Counter()
        self.judged = True
        """Whether to keep data that only checkers use: the vectors of all rounds."""
        self.closed = False
        """Set when the world ends: the clean-up afterwards is not recorded."""

    def add(self, life: str, event: object) -> None:
        if not self.closed and (self.judged or not isinstance(event, _JUDGED)):
            self.entries.append(Entry(asyncio.get_running_loop().time(), life, event))


_SITE_ACTIVE = 0.25
_SITE_FIRES = 0.05
_FIRST_FIRES = 0.25


class Observer:
    """The observer of one life of a peer (`protocols.testpoints`). Until `buggify_until_s` a quarter of all sites of a
    run are active. Each active site fires at one visit in twenty, and at the first one in four, because some sites are
    rarely visited."""

    def __init__(self, log: Log, life: str, seed: int, *, buggify_until_s: float) -> None:
        self._log, self._life, self._seed, self._until_s = log, life, seed, buggify_until_s
        self._chance: dict[str, random.Random | None] = {}

    def saw(self, event: object) -> None:
        if (machine := MACHINE.get()) is not None and machine.dead:
            return  # the callback that crashed it runs on; its events do not count
        self._log.add(self._life, event)

    def sometimes(self, what: str) -> None:
        self._log.reached[what] += 1

    def buggify(self, site: str) -> bool:
        if self._until_s == 0 or asyncio.get_running_loop().time() >= self._until_s:
            return False
        first = site not in self._chance
        if first:
            active = random.Random(f"{self._seed} {site}").random() < _SITE_ACTIVE
            self._chance[site] = random.Random(f"{self._seed} {site} {self._life}") if active else None
        chance = self._chance[site]
        fires = chance is not None and chance.random() < (_FIRST_FIRES if first else _SITE_FIRES)
        if fires:
            self._log.reached[f"buggify: {site}"] += 1
        return fires
