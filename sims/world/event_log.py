"""The event log of a simulation, which the checkers read: the events of all peers, in order. And the simulation's side
of `protocols.testpoints`: it records the events that peers tell of, and decides at which `buggify` sites to disturb
them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...protocols.transport import PeerId
from .machine import MACHINE


class Entry(NamedTuple):
    """One event. `time_s`: virtual time; `life`: the peer's number and the number of its process, counted from 0, e.g.
    ``3.1``; or the part of the world that the event concerns."""

    time_s: float
    life: str
    event: object


def peer_of(life: str) -> str:
    """The number of the peer, as text: ``3`` for the life ``3.1``."""
    return life.split(".")[0]


def id_of(life: str) -> PeerId:
    """The peer id of that life's peer: ``peer-3`` for the life ``3.1``."""
    return f"peer-{peer_of(life)}"


@dataclass(frozen=True, slots=True)
class Fell:
    """Event: the nemesis has applied a fault of this `kind` to the processes `who`, each named as a `life`. `until_s`:
    virtual time of its end; None: it does not end, or has no duration."""

    kind: str
    who: tuple[str, ...]
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """Event: a peer's process was started. `remembers`: it has the Paxos votes of the process before; `version`:
    version of the checkpoint from which it resumes, 0: none."""

    remembers: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """Event: a peer's process has ended: it `finished` the run, was `crashed` by a fault, or gave up, as a rule with an
    `error`. `foreseen`: there is no error, or its text tells the user what to mend; False: it is a defect of the
    library or of the task."""

    finished: bool = False
    crashed: bool = False
    error: str = ""
    foreseen: bool = True


@dataclass(frozen=True, slots=True)
class Resumed:
    """Event: all peers have crashed. The following events are those of a resumed run, which continues from their
    checkpoints."""


@dataclass(frozen=True, slots=True)
class Complained:
    """Event: an error occurred that no code handles, in a callback, or in a task whose result is never awaited. `what`:
    the error as text."""

    what: str


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Event: a peer was killed because it needed `needed_bytes`, and has a memory of `memory_bytes`."""

    needed_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Held:
    """Event: frames of `inbound_bytes` bytes had arrived at a peer and were not consumed yet."""

    inbound_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Event: a peer refused the messages of peer `who` because of misbehaviour. `why`: the reason."""

    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Misdelivered:
    """Event: an endpoint delivered a message out of order, twice, or to another incarnation than the one that it was
    sent to. `sender`: the peer that sent it; `what`: the name of its type; `number`: its sequence number on its lane;
    `due`: the sequence number that should have been delivered next."""

    sender: str
    what: str
    number: int
    due: int


@dataclass(frozen=True, slots=True)
class Faulted:
    """Event: an endpoint has read a message of peer `who` that breaks a rule, and counts it as a fault."""

    who: str


@dataclass(frozen=True, slots=True)
class Unpaid:
    """Event: for a message of peer `sender` that costs `cost` bytes of credit, its receiver has given back another
    number of bytes, `credit`."""

    sender: str
    cost: int
    credit: int


@dataclass(frozen=True, slots=True)
class Silent:
    """Event: an endpoint gives up the link to peer `who` because of its silence. `heard_s`: virtual time at which the
    last frame of that peer arrived."""

    who: str
    heard_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """Event: an endpoint delivers a message `what` of peer `sender` that belongs to a change of the view."""

    sender: str
    what: Any


@dataclass(frozen=True, slots=True)
class Told:
    """Event: a peer sends peer `to` a message `what` that belongs to a change of the view, tells of a view, or asks for
    one."""

    to: str
    what: object


class Log:
    """All events of a simulation, and in `reached` how often each `sometimes` place was reached, each `buggify` site
    fired, and each kind of fault struck."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.reached: Counter[str] = Counter()
        self.judged = True
        """Whether to keep the events that peers tell of. Only checkers use them, and they hold the vectors of all
        exchanges."""
        self.observers: list[Callable[[str, object], None]] = []
        """Called with each event and its life, also where events are not kept."""
        self.closed = False
        """Set when the world ends, so that the clean-up afterwards is not recorded."""

    def add(self, life: str, event: object) -> None:
        """Record an event of the world, such as a fault, or the start or the end of a peer, at the present virtual
        time. Does nothing once `closed`."""
        if not self.closed:
            self._observed(life, event)
            self.entries.append(Entry(asyncio.get_running_loop().time(), life, event))

    def saw(self, life: str, event: object) -> None:
        """Record an event that a peer's own code told of, by `testpoints.witness`. Where events are not kept
        (`judged`), only the observers are told."""
        if self.judged:
            self.add(life, event)
        elif not self.closed:
            self._observed(life, event)

    def _observed(self, life: str, event: object) -> None:
        for observer in self.observers:
            observer(life, event)


_SITE_ACTIVE = 0.25
_SITE_FIRES = 0.05
_FIRST_FIRES = 0.25


class Observer:
    """Takes the reports of one process of a peer (`testpoints.Witness`): its events, the rare places that it reaches,
    and its questions whether a `buggify` site, a spot of the code that may do something unlikely, is to do so. Until
    the virtual time `buggify_until_s` a quarter of all sites are active in a run. An active site fires at its first
    visit with a probability of 1/4, because some sites are rarely visited, and at each later visit with one of 1/20."""

    def __init__(self, log: Log, life: str, seed: int, *, buggify_until_s: float) -> None:
        self._log, self._life, self._seed, self._until_s = log, life, seed, buggify_until_s
        self._chance: dict[str, random.Random | None] = {}

    def saw(self, event: object) -> None:
        """Record an event of the peer's code, unless its machine has crashed."""
        if (machine := MACHINE.get()) is not None and machine.dead:
            return  # the callback in which it was crashed runs on, and its events do not count
        self._log.saw(self._life, event)

    def sometimes(self, what: str) -> None:
        """Count the rare place `what` as reached."""
        self._log.reached[what] += 1

    def buggify(self, site: str) -> bool:
        """Whether `site` fires at this visit; see the class. A visit that fires is counted."""
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
